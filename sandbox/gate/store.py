"""What the gate has fetched, on disk, once per address however many ask at once.

A file is read while it still arrives, so that nobody waits for the whole of a large package.  A fetch that fails leaves
nothing; those who had begun to read it see their connection end, never a short file.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path

Headers = tuple[tuple[str, str], ...]

_CHUNK_BYTES = 256 << 10
_SHORT_S = 60.0
_FOREVER_S = 10 * 365 * 86400.0
_PACKAGE = re.compile(r"\.(whl|tar\.(gz|bz2|xz)|tgz|zip|deb|udeb|metadata|apk|crate|gem)$")
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=(\d{1,10})")


class FetchFailed(Exception):
    """The rest of a file that was being fetched will not come."""


@dataclass(frozen=True, slots=True)
class Head:
    """How an answer begins."""

    status: int
    headers: Headers


@dataclass(slots=True)
class Entry:
    """One file: complete, or on its way."""

    head: Head
    path: Path
    fresh_until: float
    """Unix seconds."""
    written: int = 0
    complete: bool = False
    failed: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def read(self) -> AsyncGenerator[bytes]:
        """All of its bytes, as they come.  Raises FetchFailed."""
        at = 0
        try:
            source = self.path.open("rb")
        except FileNotFoundError as error:  # dropped for room since it was found
            raise FetchFailed from error
        with source:
            while True:
                async with self.changed:
                    while at == self.written and not (self.complete or self.failed):
                        await self.changed.wait()
                if self.failed:
                    raise FetchFailed
                if at == self.written:
                    return
                data = await asyncio.to_thread(source.read, min(_CHUNK_BYTES, self.written - at))
                at += len(data)
                yield data


def lifetime_s(path: str, head: Head) -> float:
    """How long an answer may be given again, in seconds; 0 for one that is not to be kept."""
    control = ", ".join(value for name, value in head.headers if name.lower() == "cache-control").lower()
    if head.status != 200 or "no-store" in control or "private" in control:
        return 0.0
    if "immutable" in control or _PACKAGE.search(path):
        return _FOREVER_S
    age = _MAX_AGE.search(control)
    return float(age[1]) if age else _SHORT_S


class FileStore:
    """Complete files survive a restart; ``most_bytes`` is kept by dropping the least recently read."""

    def __init__(self, folder: Path, most_bytes: int, now: Callable[[], float] = time.time) -> None:
        self._folder, self._most, self._now = folder, most_bytes, now
        folder.mkdir(parents=True, exist_ok=True)
        self._entries: dict[str, Entry] = {}
        for stale in folder.glob("*.part"):
            stale.unlink()

    def find(self, key: str) -> Entry | None:
        """A fresh file, complete or on its way."""
        entry = self._entries.get(key) or self._load(key)
        if entry is None or entry.failed or (entry.complete and entry.fresh_until < self._now()):
            self._entries.pop(key, None)
            return None
        if entry.complete:
            self._entries.pop(key, None)
            os.utime(entry.path)
        return entry

    def begin(self, key: str, head: Head, lifetime: float) -> Entry:
        entry = Entry(head, self._path(key, "part"), self._now() + lifetime)
        entry.path.touch()
        self._entries[key] = entry
        return entry

    async def fill(self, key: str, entry: Entry, chunks: AsyncGenerator[bytes]) -> None:
        """Take a file in to its end.  Raises what ``chunks`` raises, after telling the readers."""
        try:
            with await asyncio.to_thread(entry.path.open, "ab") as sink:
                async for data in chunks:
                    await asyncio.to_thread(_write, sink.fileno(), data)
                    async with entry.changed:
                        entry.written += len(data)
                        entry.changed.notify_all()
            self._keep(key, entry)
        except BaseException:
            entry.failed = True
            entry.path.unlink(missing_ok=True)
            raise
        finally:
            entry.complete = not entry.failed
            self._entries.pop(key, None)
            async with entry.changed:
                entry.changed.notify_all()

    def _keep(self, key: str, entry: Entry) -> None:
        facts = {"status": entry.head.status, "headers": entry.head.headers, "fresh_until": entry.fresh_until}
        self._path(key, "json").write_text(json.dumps(facts))
        entry.path = entry.path.rename(self._path(key, "body"))
        bodies = sorted(self._folder.glob("*.body"), key=lambda each: each.stat().st_mtime)
        total = sum(each.stat().st_size for each in bodies)
        for body in bodies[:-1]:
            if total <= self._most:
                return
            total -= body.stat().st_size
            body.unlink()
            body.with_suffix(".json").unlink(missing_ok=True)

    def _load(self, key: str) -> Entry | None:
        body = self._path(key, "body")
        try:
            facts = json.loads(self._path(key, "json").read_text())
            size = body.stat().st_size
        except (OSError, ValueError):
            return None
        head = Head(facts["status"], tuple((name, value) for name, value in facts["headers"]))
        return Entry(head, body, facts["fresh_until"], size, complete=True)

    def _path(self, key: str, kind: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.{kind}"


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
