"""Checks that a run's directory holds plain files and folders only, which matters for one that somebody sent.

A run writes into its files, so a link in a file's or a folder's place leads what a sender chose, such as a task's name,
into a shell's start-up file.  Who reads a pipe waits for ever, and who reads a device may never come to its end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from protocol.run_directory.layout import RunDirectoryError

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def require_plain_files(run_dir: Path) -> None:
    """Raise RunDirectoryError if anything in ``run_dir`` is neither a file nor a folder; ``run_dir`` itself may be a
    link.  Raises OSError for a folder that cannot be listed.  What vanishes meanwhile is left out."""
    folders = [os.fspath(run_dir)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        _refuse(run_dir, Path(entry.path))
        except FileNotFoundError:
            continue


def _refuse(run_dir: Path, path: Path) -> None:
    """Raise RunDirectoryError for what is neither a file nor a folder, unless it has vanished."""
    mode = path.lstat().st_mode
    who = f"or else ask who made {run_dir}"
    if stat.S_ISLNK(mode):
        raise RunDirectoryError(
            f"{path} is a link to {path.readlink()}, and a run writes into its files and folders: if you made it, put "
            f"what it leads to in its place (a run on another disk: --set run.dir=FOLDER), {who}"
        )
    kind = _KINDS.get(stat.S_IFMT(mode), "not a file")
    raise RunDirectoryError(f"{path} is {kind}, which no run makes: remove it if you made it, {who}")
