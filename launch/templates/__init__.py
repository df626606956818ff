"""Files that start a run on somebody else's scheduler: a batch script for Slurm, a manifest for KubeRay.

Each is made of a :class:`~launch.templates.job.Job` by a pure function.  They hold no secret: tokens are made where the
job starts, and the run's own keys are handed out by Ray.
"""
