"""A task folder as a value: path → file, read whole and written whole.

Formats are rules between such trees and tasks, without I/O; only this module touches the disk.  Links, devices and
sockets are not followed but remembered, so that whoever needs such a path can say that it is not a regular file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from protocol.files.filesystem import build_folder
from sandbox.tasks.task import TaskError

MAX_BYTES = 1 << 30
"""Largest task folder: it is held in memory."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class FileTree:
    files: dict[str, TreeFile] = field(default_factory=dict[str, TreeFile])
    """Path relative to the folder, with ``/``; no ``..``."""
    irregular: frozenset[str] = frozenset()
    """Paths that are neither regular files nor folders."""

    def subtree(self, folder: str) -> FileTree:
        """The tree of ``folder``; ``""`` and ``.`` are this one."""
        if folder in {"", "."}:
            return self
        start = f"{folder}/"
        return FileTree(
            {path[len(start) :]: file for path, file in self.files.items() if path.startswith(start)},
            frozenset(path[len(start) :] for path in self.irregular if path.startswith(start)),
        )

    def filtered(self, kept: Callable[[str], bool]) -> FileTree:
        """Those paths alone of which ``kept`` holds."""
        return FileTree(
            {path: file for path, file in self.files.items() if kept(path)}, frozenset(filter(kept, self.irregular))
        )

    def contents(self) -> dict[str, bytes]:
        return {path: file.data for path, file in self.files.items()}

    def executable_paths(self) -> frozenset[str]:
        return frozenset(path for path, file in self.files.items() if file.executable)


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Whether it is one of ``folders``, or lies below one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def as_tree_files(
    data: Mapping[str, bytes], executable: frozenset[str] = frozenset(), *, under: str = ""
) -> dict[str, TreeFile]:
    """Files of a tree, below the folder ``under``."""
    start = f"{under}/" if under else ""
    return {f"{start}{path}": TreeFile(content, path in executable) for path, content in data.items()}


def read_tree(folder: Path) -> FileTree:
    """All of ``folder`` but ``.git``.  Raises TaskError when it cannot be read or is too large."""
    files, odd, total = dict[str, TreeFile](), set[str](), 0
    for path, status in _walk(folder):
        inside = path.relative_to(folder).as_posix()
        if not stat.S_ISREG(status.st_mode):
            odd.add(inside)
            continue
        total += status.st_size
        if total > MAX_BYTES:
            raise TaskError(folder, f"is larger than {MAX_BYTES >> 20} MiB", "a task is held in memory")
        try:
            files[inside] = TreeFile(path.read_bytes(), bool(status.st_mode & stat.S_IXUSR))
        except OSError as error:
            raise TaskError(folder, f"{inside} is not readable", str(error)) from error
    return FileTree(files, frozenset(odd))


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below that is no folder, in order of the path."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != ".git":
                    yield from _walk(Path(entry.path))
            else:
                yield Path(entry.path), entry.stat(follow_symlinks=False)
    except OSError as error:
        raise TaskError(folder, "is not readable", str(error)) from error


def check_paths(tree: Mapping[str, TreeFile], folder: Path) -> None:
    """Raises TaskError when a path would lie outside ``folder``, or below a file."""
    for path in tree:
        if wrong := path_problem(path):
            raise TaskError(folder, f"{path!r} {wrong}", "it cannot be written into the folder")
        if any(str(parent) in tree for parent in PurePosixPath(path).parents):
            raise TaskError(folder, f"{path!r} lies below a file", "a path is a file or a folder, not both")


def write_tree(tree: Mapping[str, TreeFile], folder: Path) -> Path:
    """Make ``folder`` hold exactly ``tree``: whole or not there, however the process ends.

    Raises TaskError when it exists, or as :func:`check_paths` does.
    """
    if folder.exists():
        raise TaskError(folder, "exists already", "a task is never written over another: remove it first")
    check_paths(tree, folder)
    with build_folder(folder) as partial:
        for path, file in tree.items():
            target = partial / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.data)
            target.chmod(0o755 if file.executable else 0o644)
    return folder


def path_problem(path: str) -> str:
    """Why ``path`` is no plain relative path; empty when it is one."""
    parts = path.split("/")
    if ".." in parts:
        return "has .."
    if "" in parts or "." in parts:
        return "is not a plain relative path"
    if "\0" in path or not path.isprintable():
        return "has unprintable characters"
    return ""
