"""Dockerfiles, build contexts and compose files as far as a task needs them, read and written without Docker. The compose modules stand on build_context, which stands on dockerfile."""
