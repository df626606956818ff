"""Reads and writes Dockerfiles, build contexts and compose files, as far as tasks need them. No Docker is involved.

``compose`` is built on ``compose_schema`` and ``host_folders``, which like ``compose_writer`` uses ``build_context``,
which uses ``dockerfile``, which uses ``variables``.
"""
