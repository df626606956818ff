"""What the gate has fetched, on disk, once per address however many ask at once.

A file is read while it still arrives, so that nobody waits for the whole of a large package.  A fetch that fails leaves
nothing; those who had begun to read it see their connection end, never a short file.  What is on disk, whole or not,
stays within one bound: a file that is too large for it, or has no room beside what is being read, is passed on to its
readers and not kept.

Processes may share a folder: each writes to files of its own (``*.part``), and what is whole takes its place by a
rename.  What a process leaves behind when it dies is removed by the next that begins.
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

_SHORT_S = 60.0
_FOREVER_S = 10 * 365 * 86400.0
_MOST_FILES = 20_000
_MOST_UNREAD = 64
"""Fetches above which none goes on that nobody reads."""
_ABANDONED_S = 86400.0
"""Whose process cannot be proved dead is taken for dead when nothing has been written for so long."""
_PACKAGE = re.compile(r"\.(whl|tar\.(gz|bz2|xz)|tgz|zip|deb|udeb|metadata|apk|crate|gem)$")
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=(\d{1,10})")


def cache_lifetime_s(path: str, head: ResponseHead) -> float:
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

    head: ResponseHead
    fresh_until: float
    body: str
    """The file's name."""


class _File(NamedTuple):
    used_at: float
    size: int
    """In bytes, with the facts beside it."""
    path: Path


class FileCache:
    """Complete files survive a restart; ``most_bytes`` is kept by dropping the least recently read, and by keeping no
    file of more than half of it."""

    def __init__(self, folder: Path, most_bytes: int, now: Callable[[], float] = time.time) -> None:
        self._folder, self._most, self._now = folder, most_bytes, now
        folder.mkdir(parents=True, exist_ok=True)
        self._largest = most_bytes // 2
        self._entries: dict[str, CachedFile] = {}
        self._handed_out: WeakSet[CachedFile] = WeakSet()
        self._looking = asyncio.Lock()
        for part in folder.glob("*.part"):
            if self._is_abandoned(part):
                part.unlink(missing_ok=True)

    def find(self, key: str) -> CachedFile | None:
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
        self._handed_out.add(entry)
        return entry

    def may_keep(self, head: ResponseHead) -> bool:
        """Whether a file that begins so is not too large, as far as it says."""
        return head.length is None or head.length <= self._largest

    def begin(self, key: str, head: ResponseHead, lifetime: float) -> CachedFile:
        entry = CachedFile(head, self._part(key), self._now() + lifetime)
        entry.path.touch(exist_ok=False)
        self._entries[key] = entry
        self._handed_out.add(entry)
        return entry

    async def fill(self, key: str, entry: CachedFile, chunks: AsyncGenerator[bytes]) -> None:
        """Take a file in to its end; what of it has no room is passed on.  Raises what ``chunks`` raises, and
        FetchFailed when nobody reads what is not kept or may never end, after telling the readers."""
        failed, kept = True, True
        try:
            with await asyncio.to_thread(entry.path.open, "ab") as sink:
                async for data in chunks:
                    if not entry.is_read and not self._goes_on_unread(entry):
                        raise FetchFailedError
                    kept = kept and await self._has_room(entry, len(data))
                    if kept:
                        await asyncio.to_thread(_write, sink.fileno(), data)
                        entry.record_written(len(data))
                    else:
                        self._forget(key, entry)
                        await entry.pass_on(data)
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

    def _goes_on_unread(self, entry: CachedFile) -> bool:
        is_bounded = entry.head.length is not None and self.may_keep(entry.head)
        return is_bounded and len(self._entries) <= _MOST_UNREAD

    def _forget(self, key: str, entry: CachedFile) -> None:
        """Nobody finds it any more as a file that is on its way."""
        if self._entries.get(key) is entry:
            del self._entries[key]

    def _keep(self, key: str, entry: CachedFile) -> None:
        """Raises OSError, also when the file is not what was written to it."""
        size = entry.path.stat().st_size
        if size != entry.on_disk:
            raise OSError(f"{entry.path} has {size} bytes, and {entry.on_disk} were written")
        before = self._facts(self._path(key))
        entry.path = entry.path.rename(self._folder / f"{_digest(key)}.{secrets.token_hex(8)}.body")
        self._write_facts(key, _Kept(entry.head, entry.fresh_until, entry.path.name))
        if before is not None:
            (self._folder / before.body).unlink(missing_ok=True)

    def _write_facts(self, key: str, kept: _Kept) -> None:
        facts = {"status": kept.head.status, "headers": kept.head.headers, "fresh_until": kept.fresh_until}
        part = self._part(key)
        try:
            part.write_text(json.dumps({**facts, "body": kept.body}))
            part.rename(self._path(key))
        finally:
            part.unlink(missing_ok=True)

    async def _has_room(self, entry: CachedFile, more: int) -> bool:
        """Whether a file may have so many more bytes on disk.  Room is granted twofold: it is seldom looked for."""
        needed = entry.on_disk + more
        if needed <= entry.granted:
            return True
        if needed > self._largest:
            return False
        async with self._looking:
            files = await asyncio.to_thread(_by_use, self._folder)
            for wanted in (min(max(needed, 2 * entry.granted), self._largest), needed):
                if self._make_room(files, wanted - entry.granted):
                    entry.granted = wanted
                    return True
        return False

    def _make_room(self, files: list[_File], more: int) -> bool:
        """Drop what was read longest ago, if that gives room for so many more bytes; what is being read would hold its
        room all the same."""
        read = {each.path: each.on_disk for each in self._handed_out if each.is_read}
        arriving = {each.path: each.granted for each in self._entries.values()}
        taken = sum(({each.path: each.size for each in files} | read | arriving).values())
        droppable = [each for each in files if each.path.suffix == ".body" and each.path not in read]
        too_much, too_many = taken + more - self._most, len(files) - _MOST_FILES
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
        beside = _beside(body)
        facts = self._facts(beside)
        if facts is not None and facts.body == body.name:
            beside.unlink(missing_ok=True)

    def _load(self, key: str) -> CachedFile | None:
        facts = self._facts(self._path(key))
        if facts is None:
            return None
        body = self._folder / facts.body
        try:
            size = body.stat().st_size
        except OSError:
            return None
        return CachedFile(facts.head, body, facts.fresh_until, size, size, complete=True)

    def _facts(self, path: Path) -> _Kept | None:
        try:
            facts = json.loads(path.read_text())
            head = ResponseHead(facts["status"], tuple((name, value) for name, value in facts["headers"]))
            return _Kept(head, facts["fresh_until"], facts["body"])
        except (OSError, ValueError, KeyError):
            return None

    def _path(self, key: str) -> Path:
        return self._folder / f"{_digest(key)}.json"

    def _part(self, key: str) -> Path:
        """A file of this process alone."""
        mine = owner.owner_to_file_name(owner.owner_of_this_process())
        return self._folder / f"{_digest(key)}.{secrets.token_hex(8)}.{mine}.part"

    def _is_abandoned(self, part: Path) -> bool:
        try:
            written_at = part.stat().st_mtime
        except FileNotFoundError:
            return False
        whose = owner.owner_from_file_name(part.name.split(".")[-2])
        return owner.is_proved_dead(whose) or written_at + _ABANDONED_S < self._now()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _by_use(folder: Path) -> list[_File]:
    """Whole files and those on their way, what was read longest ago first."""
    found: list[_File] = []
    for path in itertools.chain(folder.glob("*.body"), folder.glob("*.part")):
        with contextlib.suppress(FileNotFoundError):  # another process has dropped it
            facts = path.stat()
            found.append(_File(facts.st_mtime, facts.st_size + _size(_beside(path)), path))
    return sorted(found)


def _beside(body: Path) -> Path:
    """Where the facts about a file are."""
    return body.with_name(f"{body.name.partition('.')[0]}.json")


def _size(path: Path) -> int:
    """In bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
