"""Reads and writes Dockerfiles, build contexts and compose files, as far as tasks need them. No Docker is involved.

``compose`` and ``compose_writer`` are built on ``compose_schema`` and ``build_context``, which uses ``dockerfile``,
which uses ``variables``.
"""
