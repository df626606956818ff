"""The command ``longshore templates``: writes a batch script for Slurm or a KubeRay manifest that starts a run.

Each is rendered from a :class:`~launch.templates.job.ClusterJob` by a pure function.  They contain no secret: tokens
are created where the job starts, and Ray distributes the run's own keys.
"""
