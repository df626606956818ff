"""The folder in which a benchmark keeps its runs: the caller's, or a temporary one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from pydantic import Field

from protocol.cli.arguments import option
from protocol.errors import UserError

OutputFolder = Annotated[
    Path | None,
    option("FOLDER"),
    Field(description="Folder to keep the runs in; default: a temporary one, removed if all checks pass."),
]


def require_empty_folder(folder: Path | None) -> Path | None:
    """Raise UserError if the folder is not empty."""
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder: remove what is there, or name another --output")
    return folder


def make_output_folder(folder: Path | None) -> Path:
    """Return the folder, which is created if needed."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="ls-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()
