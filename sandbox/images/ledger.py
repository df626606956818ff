"""Records longshore's images, the last use of each, and their reservations, for all processes of a machine.

It is a folder with one small file per name: its text is the name, its modification time the last use, and a shared lock
on it a reservation. The kernel drops the lock when its process dies, so no reservation outlives its owner. Eviction
needs the exclusive lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


class ImageLedger:
    """The ledger of one engine.  No method blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._held: dict[str, tuple[int, int]] = {}
        """Locked descriptor and number of reservations of this process, by name."""

    def _file(self, name: str, kind: str = "image") -> Path:
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.{kind}"

    def record(self, name: str) -> None:
        """Record that the image is longshore's and may be evicted."""
        making = self._folder / f".{os.getpid()}.{threading.get_ident()}"
        making.write_text(name)
        making.rename(self._file(name))

    def forget(self, name: str) -> None:
        self._file(name).unlink(missing_ok=True)

    def is_ours(self, name: str) -> bool:
        return self._file(name).exists()

    def touch(self, name: str) -> None:
        """Record a use now; does nothing for an image that is not longshore's."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._file(name))

    def last_used(self) -> dict[str, float]:
        """Return the time of last use of longshore's images by name, Unix seconds."""
        found: dict[str, float] = {}
        for each in self._folder.glob("*.image"):
            with contextlib.suppress(FileNotFoundError):  # another process has just evicted it
                found[each.read_text()] = each.stat().st_mtime
        return found

    def reserve(self, name: str) -> bool:
        """Reserve the image; returns False while it is being evicted. Each True needs one :meth:`release`."""
        descriptor, count = self._held.get(name, (-1, 0))
        if not count:
            locked = _lock(self._file(name, "lock"), fcntl.LOCK_SH)
            if locked is None:
                return False
            descriptor = locked
        self._held[name] = (descriptor, count + 1)
        return True

    def release(self, name: str) -> None:
        self.touch(name)
        descriptor, count = self._held.pop(name)
        if count > 1:
            self._held[name] = (descriptor, count - 1)
        else:
            os.close(descriptor)

    @contextmanager
    def lock_exclusively(self, name: str, kind: str = "lock") -> Generator[bool]:
        """Yield whether the lock was free, and hold it until the block ends.

        ``kind`` ``build``: the lock for building.
        """
        descriptor = _lock(self._file(name, kind), fcntl.LOCK_EX)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _lock(path: Path, how: int) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
