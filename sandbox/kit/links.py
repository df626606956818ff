"""Links that lead to what tests keep to themselves are removed from a container's files.

Tests that run as root read what an agent's link leads to: with one into their own folder, they compare what they expect
with itself.  A copy runs in the container, on the kit's Python, when the tests are in it and nothing of the agent's
runs.  It looks at every link of every file system there but the kernel's own and the kit's, and removes one that

* leads into or through a hidden folder, or to ``/``;
* leads through ``/proc``, where a path may be another for each who follows it, but for what images have there;
* leads through what is not there and up from it again, or through more links than the kernel follows.

Whether a link leads there is asked of the kernel, name by name, so that links on the way, ``..`` and paths without end
mean what they mean to it.  A link that only a removed one led on leads nowhere.  Standard library only, and no module
of it that takes time to load.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

_KERNELS = frozenset((
    "proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "devtmpfs", "securityfs", "debugfs", "tracefs", "bpf",
))  # fmt: skip
"""File systems in which nobody makes a link."""
_MOST_LINKS = 40
"""Linux follows no more."""
_IN_PROC = frozenset((b"mounts", b"self/mounts", b"self/fd/1", b"self/fd/2"))
"""What ``/etc/mtab`` and an image's logs lead to."""
_OF_DEV = {(b"fd", b"/proc/self/fd"), (b"stdin", b"/proc/self/fd/0"), (b"core", b"/proc/kcore")}
_AWAY = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG))
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEXT = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_NAMED, _NAME_BYTES = 5, 100


def main(arguments: list[str]) -> int:
    """``root folder …``: prints the links that were removed, the first by name.  Exit code 1, with the reason in their
    place, where one could not be looked at or removed."""
    root, *hidden = arguments
    links = Links(root, hidden)
    try:
        links.remove(kernels_devices())
    except OSError as error:
        sys.stdout.write(f"{_shown(links.place)}: {error.strerror}")
        return 1
    more = links.removed - len(links.named)
    sys.stdout.write(", ".join(map(_shown, links.named)) + (f" and {more} more" if more else ""))
    return 0


def kernels_devices(mountinfo: str = "/proc/self/mountinfo") -> frozenset[int]:
    """Numbers of the file systems that are the kernel's own."""
    with open(mountinfo, "rb") as file:  # noqa: PTH123  pathlib takes longer to load than this runs
        mounts = [line.split() for line in file]
    kinds = ((each[2], each[each.index(b"-") + 1].decode()) for each in mounts)
    return frozenset(os.makedev(*map(int, device.split(b":"))) for device, kind in kinds if kind in _KERNELS)


class Links:
    """Of the files below ``root``, which absolute links start from.  The working directory is where it looks."""

    def __init__(self, root: str, hidden: list[str]) -> None:
        """``hidden``: folders, by their paths below ``root``."""
        self._root = os.open(root, _FOLDER)
        self._top = _which(self._root)
        self._proc = self._named("proc")
        self._hidden = frozenset(map(self._named, hidden))
        self._passed = self._hidden | {self._proc, self._named(".sbx")}
        self.place: list[bytes] = []
        """Of the folder it is in, or the link that it looks at."""
        self.named: list[list[bytes]] = []
        self.removed = 0

    def _named(self, name: str) -> tuple[int, int] | None:
        try:
            return _which(os.open(name.lstrip("/"), _FOLDER, dir_fd=self._root))  # stays open: its number is not reused
        except FileNotFoundError:
            return None

    def remove(self, devices: frozenset[int]) -> None:
        """All there are, but on these file systems.  Raises OSError at :attr:`place`."""
        os.chdir(self._root)
        left = [self._look(devices)]
        while left:
            if left[-1]:
                self.place.append(left[-1].pop())
                os.chdir(self.place[-1])
                left.append(self._look(devices))
                continue
            left.pop()
            if left:
                os.chdir(b"..")
                self.place.pop()

    def _look(self, devices: frozenset[int]) -> list[bytes]:
        """Remove the links of this folder.  Returns the folders in it."""
        here = os.open(b".", _FOLDER)
        try:
            which = _which(here)
            return [] if which[0] in devices or which in self._passed else self._look_through(here)
        finally:
            os.close(here)

    def _look_through(self, here: int) -> list[bytes]:
        folders: list[bytes] = []
        in_dev = self.place == [b"dev"]
        with os.scandir(b".") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_symlink():
                    self._try(entry.name, here, in_dev=in_dev)
        return folders

    def _try(self, name: bytes, here: int, *, in_dev: bool) -> None:
        self.place.append(name)
        text = os.readlink(name, dir_fd=here)
        if not (in_dev and (name, text) in _OF_DEV) and self._leads_there(text, here):
            os.unlink(name, dir_fd=here)
            self.removed += 1
            if self.removed <= _MOST_NAMED:
                self.named.append(self.place[:])
        self.place.pop()

    def _leads_there(self, text: bytes, here: int) -> bool:
        """Whether a link in the folder ``here`` with this text is to be removed."""
        left = _backwards(text)
        at = os.dup(self._root if text.startswith(b"/") else here)
        try:
            links = 1
            while left:
                name = left.pop()
                if name == b".." and _which(at) == self._top:
                    continue
                try:
                    then = os.open(name, _NEXT, dir_fd=at)
                except OSError as error:
                    if error.errno not in _AWAY:
                        raise
                    return b".." in (name, *left)
                found = os.fstat(then)
                if stat.S_ISLNK(found.st_mode):
                    text = os.readlink(b"", dir_fd=then)
                    os.close(then)
                    left += _backwards(text)
                    if text.startswith(b"/"):
                        os.dup2(self._root, at, inheritable=False)
                    links += 1
                    if links > _MOST_LINKS:
                        return True
                    continue
                os.close(at)
                at = then
                where = (found.st_dev, found.st_ino)
                if where in self._hidden:
                    return True
                if where == self._proc:
                    return b"/".join(reversed(left)) not in _IN_PROC
            return _which(at) == self._top
        finally:
            os.close(at)


def _backwards(text: bytes) -> list[bytes]:
    return [each for each in reversed(text.split(b"/")) if each not in (b"", b".")]


def _which(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino


def _shown(place: list[bytes]) -> str:
    name = b"/" + b"/".join(place)
    text = (name if len(name) <= _NAME_BYTES else name[:_NAME_BYTES] + b"...").decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
