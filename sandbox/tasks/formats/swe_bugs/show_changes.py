"""Prints what has changed between two folders, as ``git diff`` does, where there is no git.

``python3 show_changes.py BEFORE AFTER``.  It runs in containers, and is of the standard library only.  Folders that git
or pytest keeps, and caches of Python, are left out.  Text and bytes are told alike, so that ``git apply`` takes all.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

_LEFT_OUT = {".git", ".pytest_cache", "__pycache__"}
_TO_QUOTE = re.compile(r'["\\\x00-\x1f\x7f]')
_NO_FILE = "/dev/null"


def show_changes(before: Path, after: Path) -> Iterator[str]:
    """Yield the lines of the patch that leads from one folder to the other.  Raises OSError."""
    old_modes, new_modes = _modes(before), _modes(after)
    for path in sorted(old_modes.keys() | new_modes.keys()):
        old, new = old_modes.get(path), new_modes.get(path)
        steps = [(old, new)] if not (old and new) or old[:3] == new[:3] else [(old, None), (None, new)]
        for old_mode, new_mode in steps:
            old_lines = _lines(before / path) if old_mode else []
            new_lines = _lines(after / path) if new_mode else []
            if (old_mode, old_lines) != (new_mode, new_lines):
                yield from _show_file(path, old_mode, new_mode, list(difflib.unified_diff(old_lines, new_lines)))


def _modes(folder: Path) -> dict[str, str]:
    """Return the modes, as git has them, of the files and links below a folder."""
    modes: dict[str, str] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        for name in (*folders, *names):
            path = Path(place, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                modes[f"{path.relative_to(folder)}"] = "120000"
            elif stat.S_ISREG(mode):
                modes[f"{path.relative_to(folder)}"] = "100755" if mode & stat.S_IXUSR else "100644"
    return modes


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, or where a link leads."""
    text = f"{path.readlink()}" if path.is_symlink() else os.fsdecode(path.read_bytes())
    return io.StringIO(text, newline="\n").readlines()


def _show_file(path: str, old_mode: str | None, new_mode: str | None, hunks: list[str]) -> Iterator[str]:
    old, new = _quote(f"a/{path}"), _quote(f"b/{path}")
    yield f"diff --git {old} {new}\n"
    if old_mode is None:
        yield f"new file mode {new_mode}\n"
    elif new_mode is None:
        yield f"deleted file mode {old_mode}\n"
    elif old_mode != new_mode:
        yield f"old mode {old_mode}\nnew mode {new_mode}\n"
    if hunks:
        tab = "\t" if " " in path else ""
        yield f"--- {old if old_mode else _NO_FILE}{tab}\n+++ {new if new_mode else _NO_FILE}{tab}\n"
    for line in hunks[2:]:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _quote(path: str) -> str:
    """Return a path as git writes it in a patch."""
    quoted = _TO_QUOTE.sub(lambda found: f"\\{ord(found[0]):03o}", path)
    return path if quoted == path else f'"{quoted}"'


if __name__ == "__main__":
    for each in show_changes(*map(Path, sys.argv[1:])):
        sys.stdout.buffer.write(os.fsencode(each))
