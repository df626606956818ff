"""What a run that goes on beside us has said last, read from the end of its log."""

from __future__ import annotations

import os
from pathlib import Path

_END_BYTES = 8192


def read_last_line(log: Path) -> str:
    """The last line that is not empty, without what marks an error; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _END_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "").removeprefix("error: ")
