"""What the gate has fetched, on disk, once per address however many ask at once.

A file is read while it still arrives, so that nobody waits for the whole of a large package.  A fetch that fails leaves
nothing; those who had begun to read it see their connection end, never a short file.

Processes may share a folder: each writes to files of its own (``*.part``), and what is whole takes its place by a
rename.  What a process leaves behind when it dies is removed by the next that begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sandbox import owner

Headers = tuple[tuple[str, str], ...]

_CHUNK_BYTES = 256 << 10
_SHORT_S = 60.0
_FOREVER_S = 10 * 365 * 86400.0
_ABANDONED_S = 86400.0
"""Whose process cannot be proved dead is taken for dead when nothing has been written for so long."""
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


class _Kept(NamedTuple):
    """What stands beside a complete file."""

    head: Head
    fresh_until: float
    body: str
    """The file's name."""


class FileStore:
    """Complete files survive a restart; ``most_bytes`` is kept by dropping the least recently read."""

    def __init__(self, folder: Path, most_bytes: int, now: Callable[[], float] = time.time) -> None:
        self._folder, self._most, self._now = folder, most_bytes, now
        folder.mkdir(parents=True, exist_ok=True)
        self._entries: dict[str, Entry] = {}
        for part in folder.glob("*.part"):
            if self._is_abandoned(part):
                part.unlink(missing_ok=True)

    def find(self, key: str) -> Entry | None:
        """A fresh file, complete or on its way."""
        entry = self._entries.get(key) or self._load(key)
        if entry is None or entry.failed or (entry.complete and entry.fresh_until < self._now()):
            self._entries.pop(key, None)
            return None
        if entry.complete:
            self._entries.pop(key, None)
            try:
                os.utime(entry.path)
            except FileNotFoundError:  # another process has just dropped it
                return None
        return entry

    def begin(self, key: str, head: Head, lifetime: float) -> Entry:
        entry = Entry(head, self._part(key), self._now() + lifetime)
        entry.path.touch(exist_ok=False)
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
        """Raises OSError, also when the file is not what was written to it."""
        size = entry.path.stat().st_size
        if size != entry.written:
            raise OSError(f"{entry.path} has {size} bytes, and {entry.written} were written")
        before = self._facts(self._path(key))
        entry.path = entry.path.rename(self._folder / f"{_digest(key)}.{secrets.token_hex(8)}.body")
        self._write_facts(key, _Kept(entry.head, entry.fresh_until, entry.path.name))
        if before is not None:
            (self._folder / before.body).unlink(missing_ok=True)
        self._make_room(entry.path)

    def _write_facts(self, key: str, kept: _Kept) -> None:
        facts = {"status": kept.head.status, "headers": kept.head.headers, "fresh_until": kept.fresh_until}
        part = self._part(key)
        try:
            part.write_text(json.dumps({**facts, "body": kept.body}))
            part.rename(self._path(key))
        finally:
            part.unlink(missing_ok=True)

    def _make_room(self, newest: Path) -> None:
        bodies = _by_use(self._folder.glob("*.body"))
        total = sum(size for _, size, _ in bodies)
        for _, size, body in bodies:
            if total <= self._most:
                return
            if body != newest:
                total -= size
                self._drop(body)

    def _drop(self, body: Path) -> None:
        body.unlink(missing_ok=True)
        beside = self._folder / f"{body.name.partition('.')[0]}.json"
        facts = self._facts(beside)
        if facts is not None and facts.body == body.name:
            beside.unlink(missing_ok=True)

    def _load(self, key: str) -> Entry | None:
        facts = self._facts(self._path(key))
        if facts is None:
            return None
        body = self._folder / facts.body
        try:
            size = body.stat().st_size
        except OSError:
            return None
        return Entry(facts.head, body, facts.fresh_until, size, complete=True)

    def _facts(self, path: Path) -> _Kept | None:
        try:
            facts = json.loads(path.read_text())
            head = Head(facts["status"], tuple((name, value) for name, value in facts["headers"]))
            return _Kept(head, facts["fresh_until"], facts["body"])
        except (OSError, ValueError, KeyError):
            return None

    def _path(self, key: str) -> Path:
        return self._folder / f"{_digest(key)}.json"

    def _part(self, key: str) -> Path:
        """A file of this process alone."""
        mine = owner.this_process().replace("/", "_")
        return self._folder / f"{_digest(key)}.{secrets.token_hex(8)}.{mine}.part"

    def _is_abandoned(self, part: Path) -> bool:
        try:
            written_at = part.stat().st_mtime
        except FileNotFoundError:
            return False
        whose = part.name.split(".")[-2].replace("_", "/")
        return owner.proved_dead(whose) or written_at + _ABANDONED_S < self._now()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _by_use(bodies: Iterable[Path]) -> list[tuple[float, int, Path]]:
    """(when it was last read, size in bytes, path), the oldest first."""
    found: list[tuple[float, int, Path]] = []
    for body in bodies:
        with contextlib.suppress(FileNotFoundError):  # another process has dropped it
            facts = body.stat()
            found.append((facts.st_mtime, facts.st_size, body))
    return sorted(found)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
