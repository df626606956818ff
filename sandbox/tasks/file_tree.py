"""A folder as a value: files by path, read and written as a whole.  A path that ends in ``/`` is an empty folder.

Formats convert between such trees and tasks without I/O; only this module accesses the disk. Devices, sockets and links
that lead elsewhere are recorded but not followed, so that a reader that needs such a path can report that it is not a
regular file.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from protocol.files.filesystem import build_folder
from sandbox.tasks.task import TaskError

MAX_BYTES = 1 << 30
"""Maximum size of a folder, which is held in memory."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A regular file."""

    data: bytes
    executable: bool = False
    modified_s: int | None = field(default=None, compare=False)
    """Unix time of its last change on disk; None if it comes from elsewhere."""
    mode: int | None = field(default=None, compare=False)
    """Permissions on disk, of which only ``executable`` counts; None if it comes from elsewhere."""


@dataclass(frozen=True, slots=True)
class FileTree:
    """The regular files and empty folders below a folder, and the paths of everything else."""

    files: dict[str, TreeFile] = field(default_factory=dict[str, TreeFile])
    """By path relative to the folder; ``/`` separates, ``..`` does not occur."""
    irregular: frozenset[str] = frozenset()
    """Paths that are neither regular files nor folders."""

    def subtree(self, folder: str) -> FileTree:
        """Return the tree below ``folder``; ``""`` and ``.`` are this tree."""
        if folder in {"", "."}:
            return self
        start = f"{folder}/"
        return FileTree(
            {path[len(start) :]: file for path, file in self.files.items() if path.startswith(start) and path != start},
            frozenset(path[len(start) :] for path in self.irregular if path.startswith(start)),
        )

    def filtered(self, kept: Callable[[str], bool]) -> FileTree:
        """Keep the paths that ``kept`` accepts, which gets those of empty folders without their ``/``."""
        return FileTree(
            {path: file for path, file in self.files.items() if kept(path.removesuffix("/"))},
            frozenset(filter(kept, self.irregular)),
        )

    def contents(self) -> dict[str, bytes]:
        """Return the contents by path."""
        return {path: file.data for path, file in self.files.items()}

    def executable_paths(self) -> frozenset[str]:
        """Return the paths of executable files."""
        return frozenset(path for path, file in self.files.items() if file.executable)

    def lost_modes(self) -> list[str]:
        """Return the paths of files whose permissions on disk say more than whether they can be executed: with special
        bits, or not readable for others where another file of their folder is."""
        modes = {path: file.mode for path, file in self.files.items() if file.mode is not None}
        open_folders = {posixpath.dirname(path) for path, mode in modes.items() if mode & stat.S_IROTH}
        special = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
        return [
            path
            for path, mode in modes.items()
            if mode & special or (not mode & stat.S_IROTH and posixpath.dirname(path) in open_folders)
        ]

    def modification_times(self) -> dict[str, int]:
        """Return the Unix time of the last change of each file that comes from a disk."""
        return {path: file.modified_s for path, file in self.files.items() if file.modified_s is not None}


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Return whether ``path`` is one of ``folders`` or lies below one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def as_tree_files(
    data: Mapping[str, bytes], executable: frozenset[str] = frozenset(), *, under: str = ""
) -> dict[str, TreeFile]:
    """Convert files to those of a tree, below the folder ``under``."""
    start = f"{under}/" if under else ""
    return {f"{start}{path}": TreeFile(content, path in executable) for path, content in data.items()}


def read_tree(folder: Path, *, apart: bool = False) -> FileTree:
    """Read all of ``folder`` except ``.git``; a folder with nothing else is empty.

    A link to a file or folder within ``folder`` is read as that, as is one of a Hugging Face cache to its own file; a
    link to a folder is not followed in a folder that one led to, so that links multiply nothing.  ``apart``: each
    folder in it is copied to a place of its own, so a link there must stay within that one. Raises TaskError if the
    folder cannot be read or is larger than MAX_BYTES.
    """
    files, odd, total = dict[str, TreeFile](), set[str](), 0

    def is_followed(link: Path) -> bool:
        parts = link.relative_to(folder).parts
        return _is_followed(link, folder / parts[0] if apart and len(parts) > 1 else folder)

    for path, found in _walk(folder, is_followed):
        inside = path.relative_to(folder).as_posix()
        followed = stat.S_ISLNK(found.st_mode) and path.is_file() and is_followed(path)
        status = path.stat() if followed else found
        if stat.S_ISDIR(found.st_mode):
            files[f"{inside}/"] = TreeFile(b"", modified_s=int(status.st_mtime))
            continue
        if not stat.S_ISREG(status.st_mode):
            odd.add(inside)
            continue
        total += status.st_size
        if total > MAX_BYTES:
            raise TaskError(folder, f"is larger than {MAX_BYTES >> 20} MiB", "a task is held in memory")
        try:
            mode = stat.S_IMODE(status.st_mode)
            files[inside] = TreeFile(path.read_bytes(), bool(mode & stat.S_IXUSR), int(status.st_mtime), mode)
        except OSError as error:
            raise TaskError(folder, f"{inside} is not readable", str(error)) from error
    return FileTree(files, frozenset(odd))


def _is_followed(link: Path, folder: Path) -> bool:
    """Return whether a link leads to a file or folder within the folder, or is one of a snapshot in a Hugging Face
    cache that leads to the cache's own file."""
    if not (link.is_file() or link.is_dir()):
        return False
    file = link.resolve()
    cache = file.parent.parent
    in_cache = file.parent.name == "blobs" and link.is_relative_to(cache / "snapshots")
    return in_cache or file.is_relative_to(folder.resolve())


def _walk(folder: Path, is_followed: Callable[[Path], bool]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield everything in the folder that is not a folder with something in it, in the order of the paths; a link to a
    folder is one if it is followed."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        for entry in entries:
            path, linked = Path(entry.path), entry.is_symlink()
            if entry.is_dir(follow_symlinks=False) or (linked and path.is_dir() and is_followed(path)):
                if entry.name != ".git":
                    empty = True
                    for each in _walk(path, (lambda _: False) if linked else is_followed):
                        empty = False
                        yield each
                    if empty:
                        yield path, path.stat()
            else:
                yield path, entry.stat(follow_symlinks=False)
    except OSError as error:
        raise TaskError(folder, "is not readable", str(error)) from error


def check_paths(tree: Mapping[str, TreeFile], folder: Path) -> None:
    """Raise TaskError if a path would lie outside ``folder``, or below a file."""
    for path in tree:
        if wrong := entry_problem(path):
            raise TaskError(folder, f"{path!r} {wrong}", "it cannot be written into the folder")
        place = PurePosixPath(path)
        if any(str(each) in tree for each in (*place.parents, *([place] if path.endswith("/") else ()))):
            raise TaskError(folder, f"{path!r} is or lies below a file", "a path is a file or a folder, not both")


def write_tree(tree: Mapping[str, TreeFile], folder: Path) -> Path:
    """Create ``folder`` with exactly ``tree``; if the process ends midway, the folder does not exist.

    Raises TaskError if it exists, or like :func:`check_paths`.
    """
    if folder.exists():
        raise TaskError(folder, "exists already", "a task never overwrites another: remove it first")
    check_paths(tree, folder)
    with build_folder(folder) as partial:
        for path, file in tree.items():
            target = partial / path
            if path.endswith("/"):
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.data)
            target.chmod(0o755 if file.executable else 0o644)
    return folder


def entry_problem(path: str) -> str:
    """Return why ``path`` is not that of a file or, with a ``/`` at its end, of an empty folder; empty if it is one."""
    return path_problem(path.removesuffix("/"))


def path_problem(path: str) -> str:
    """Return why ``path`` is not a plain relative path; empty if it is one."""
    parts = path.split("/")
    if ".." in parts:
        return "has .."
    if "" in parts or "." in parts:
        return "is not a plain relative path"
    if "\0" in path or not path.isprintable():
        return "has unprintable characters"
    return ""
