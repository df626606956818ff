"""Limit of open files: each session holds several, and the usual soft limit is 1024."""

from __future__ import annotations

import resource
from contextlib import suppress


def raise_open_file_limit() -> None:
    """Raise the soft limit to the hard one, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
