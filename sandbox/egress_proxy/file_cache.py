"""The proxy's cache on disk: each URL is fetched once, even if several clients request it at the same time.

A file can be read while it is still arriving, so that no client waits for the whole of a large package. A fetch that
fails leaves nothing; clients that were reading it see their connection end, never a short file. What is on disk,
complete or not, stays within one limit: a file that is too large for it, or does not fit beside the files being read,
is passed through to its readers and not kept.

Processes may share a folder: each writes its own files (``*.part``), and a complete file is renamed into place.
The files of a process that died are removed by the next one that starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

from sandbox.docker import owner
from sandbox.egress_proxy.cached_file import CachedFile, FetchFailedError, ResponseHead

_DEFAULT_LIFETIME_S = 60.0
_IMMUTABLE_LIFETIME_S = 10 * 365 * 86400.0
MAX_FILES = 20_000
MAX_UNREAD = 64
"""Number of fetches above which a fetch without a reader is stopped."""
_ABANDONED_S = 86400.0
"""Seconds without a write after which a part counts as abandoned if its process cannot be proved dead."""
_PACKAGE = re.compile(r"\.(whl|tar\.(gz|bz2|xz)|tgz|zip|deb|udeb|metadata|apk|crate|gem)$")
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=(\d{1,10})")


def cache_lifetime_s(path: str, head: ResponseHead) -> float:
    """Return the seconds for which a response may be reused; 0 for one that must not be kept."""
    control = ", ".join(value for name, value in head.headers if name.lower() == "cache-control").lower()
    if head.status != 200 or "no-store" in control or "private" in control:
        return 0.0
    if "immutable" in control or _PACKAGE.search(path):
        return _IMMUTABLE_LIFETIME_S
    age = _MAX_AGE.search(control)
    return float(age[1]) if age else _DEFAULT_LIFETIME_S


class _CachedMetadata(NamedTuple):
    """The metadata of a complete file."""

    head: ResponseHead
    fresh_until: float
    body: str
    """Name of the file."""


class _FileOnDisk(NamedTuple):
    used_at: float
    size: int
    """Size in bytes, including its metadata."""
    path: Path


class FileCache:
    """The cache. Complete files survive a restart.

    It stays within ``max_bytes`` by dropping the files that were read longest ago, and by keeping no file of more than
    half of it.
    """

    def __init__(self, folder: Path, max_bytes: int, now: Callable[[], float] = time.time) -> None:
        self._folder, self._max_bytes, self._now = folder, max_bytes, now
        folder.mkdir(parents=True, exist_ok=True)
        self._max_file_bytes = max_bytes // 2
        self._entries: dict[str, CachedFile] = {}
        self._in_use: WeakSet[CachedFile] = WeakSet()
        self._room_lock = asyncio.Lock()
        for part in folder.glob("*.part"):
            if self._is_abandoned(part):
                part.unlink(missing_ok=True)

    def find(self, key: str) -> CachedFile | None:
        """Return a fresh file, complete or being fetched."""
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
        self._in_use.add(entry)
        return entry

    def may_keep(self, head: ResponseHead) -> bool:
        """Return whether a file with this head is small enough, as far as the head states its size."""
        return head.length is None or head.length <= self._max_file_bytes

    def begin(self, key: str, head: ResponseHead, lifetime: float) -> CachedFile:
        """Begin a file that will be fetched and may be reused for ``lifetime`` seconds."""
        entry = CachedFile(head, self._part(key), self._now() + lifetime)
        entry.path.touch(exist_ok=False)
        self._entries[key] = entry
        self._in_use.add(entry)
        return entry

    async def fill(self, key: str, entry: CachedFile, chunks: AsyncGenerator[bytes]) -> None:
        """Write a file to its end; what does not fit is passed through.

        Raises what ``chunks`` raises, and FetchFailedError if an uncached or endless file has no reader, after
        notifying the readers.
        """
        failed, kept = True, True
        try:
            with await asyncio.to_thread(entry.path.open, "ab") as sink:
                async for data in chunks:
                    if not entry.has_readers and not self._continues_without_readers(entry):
                        raise FetchFailedError
                    kept = kept and await self._has_room(entry, len(data))
                    if kept:
                        await asyncio.to_thread(_write, sink.fileno(), data)
                        entry.record_written(len(data))
                    else:
                        self._forget(key, entry)
                        await entry.stream_uncached(data)
            if entry.on_disk:
                self._keep(key, entry)
            else:
                entry.discard()
            failed = False
        finally:
            if failed:
                entry.discard()
            self._forget(key, entry)
            entry.finish(failed=failed)

    def _continues_without_readers(self, entry: CachedFile) -> bool:
        is_bounded = entry.head.length is not None and self.may_keep(entry.head)
        return is_bounded and len(self._entries) <= MAX_UNREAD

    def _forget(self, key: str, entry: CachedFile) -> None:
        """Stop offering a file that is being fetched."""
        if self._entries.get(key) is entry:
            del self._entries[key]

    def _keep(self, key: str, entry: CachedFile) -> None:
        """Keep a complete file. Raises OSError, also if the file is not what was written to it."""
        size = entry.path.stat().st_size
        if size != entry.on_disk:
            raise OSError(f"{entry.path} has {size} bytes, but {entry.on_disk} were written")
        before = self._read_metadata(self._path(key))
        entry.path = entry.path.rename(self._folder / f"{_digest(key)}.{secrets.token_hex(8)}.body")
        self._write_metadata(key, _CachedMetadata(entry.head, entry.fresh_until, entry.path.name))
        if before is not None:
            (self._folder / before.body).unlink(missing_ok=True)

    def _write_metadata(self, key: str, kept: _CachedMetadata) -> None:
        facts = {"status": kept.head.status, "headers": kept.head.headers, "fresh_until": kept.fresh_until}
        part = self._part(key)
        try:
            part.write_text(json.dumps({**facts, "body": kept.body}))
            part.rename(self._path(key))
        finally:
            part.unlink(missing_ok=True)

    async def _has_room(self, entry: CachedFile, more: int) -> bool:
        """Return whether a file may have ``more`` more bytes on disk. Grants twice the room, so that this is seldom
        needed."""
        needed = entry.on_disk + more
        if needed <= entry.granted:
            return True
        if needed > self._max_file_bytes:
            return False
        async with self._room_lock:
            files = await asyncio.to_thread(_by_use, self._folder)
            for granted in (min(max(needed, 2 * entry.granted), self._max_file_bytes), needed):
                if self._make_room(files, granted - entry.granted):
                    entry.granted = granted
                    return True
        return False

    def _make_room(self, files: list[_FileOnDisk], more: int) -> bool:
        """Drop the files that were read longest ago, if that frees enough; files being read would keep their space."""
        read = {each.path: each.on_disk for each in self._in_use if each.has_readers}
        arriving = {each.path: each.granted for each in self._entries.values()}
        taken = sum(({each.path: each.size for each in files} | read | arriving).values())
        droppable = [each for each in files if each.path.suffix == ".body" and each.path not in read]
        too_much, too_many = taken + more - self._max_bytes, len(files) - MAX_FILES
        if too_much > sum(each.size for each in droppable):
            return False
        for each in droppable:
            if too_much <= 0 and too_many <= 0:
                break
            self._drop(each.path)
            too_much -= each.size
            too_many -= 1
        return True

    def _drop(self, body: Path) -> None:
        body.unlink(missing_ok=True)
        metadata_path = _metadata_path(body)
        facts = self._read_metadata(metadata_path)
        if facts is not None and facts.body == body.name:
            metadata_path.unlink(missing_ok=True)

    def _load(self, key: str) -> CachedFile | None:
        facts = self._read_metadata(self._path(key))
        if facts is None:
            return None
        body = self._folder / facts.body
        try:
            size = body.stat().st_size
        except OSError:
            return None
        return CachedFile(facts.head, body, facts.fresh_until, size, size, complete=True)

    def _read_metadata(self, path: Path) -> _CachedMetadata | None:
        try:
            facts = json.loads(path.read_text())
            head = ResponseHead(facts["status"], tuple((name, value) for name, value in facts["headers"]))
            return _CachedMetadata(head, facts["fresh_until"], facts["body"])
        except (OSError, ValueError, KeyError):
            return None

    def _path(self, key: str) -> Path:
        return self._folder / f"{_digest(key)}.json"

    def _part(self, key: str) -> Path:
        """Return a new path that only this process uses."""
        part_owner = owner.owner_to_file_name(owner.owner_of_this_process())
        return self._folder / f"{_digest(key)}.{secrets.token_hex(8)}.{part_owner}.part"

    def _is_abandoned(self, part: Path) -> bool:
        try:
            written_at = part.stat().st_mtime
        except FileNotFoundError:
            return False
        part_owner = owner.owner_from_file_name(part.name.split(".")[-2])
        return owner.is_proved_dead(part_owner) or written_at + _ABANDONED_S < self._now()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _by_use(folder: Path) -> list[_FileOnDisk]:
    """List complete files and parts, those read longest ago first."""
    found: list[_FileOnDisk] = []
    for path in itertools.chain(folder.glob("*.body"), folder.glob("*.part")):
        with contextlib.suppress(FileNotFoundError):  # another process has dropped it
            facts = path.stat()
            found.append(_FileOnDisk(facts.st_mtime, facts.st_size + _size(_metadata_path(path)), path))
    return sorted(found)


def _metadata_path(body: Path) -> Path:
    """Return the path of a file's metadata."""
    return body.with_name(f"{body.name.partition('.')[0]}.json")


def _size(path: Path) -> int:
    """Return the size in bytes; 0 if there is no file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
