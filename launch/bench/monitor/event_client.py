"""A client that is disconnected again and again, and counts the events that it receives."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import aiohttp
import orjson

from protocol.run_directory.file_tail import read_lines
from protocol.run_directory.json_fields import Event

EventKey: TypeAlias = tuple[object, ...]
_CUT_S = 1.6
"""Maximum seconds between two disconnections; the mean is half of it."""


class ServerSentEvent(NamedTuple):
    id: str
    event: str
    data: bytes


@dataclass(slots=True)
class ReconnectingClient:
    """Follows the events at ``url`` until cancelled, and resumes from the last id after each disconnection."""

    url: str
    cuts: int
    """Seconds after which the client disconnects by itself."""
    rng: random.Random = field(default_factory=lambda: random.Random(11))
    seen: Counter[EventKey] = field(default_factory=Counter[EventKey])
    latencies_ms: list[float] = field(default_factory=list[float])
    """Seconds from writing an event to its arrival, for events that were written while connected."""
    cut: int = 0
    _last: str = ""
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def await_events(self, events: int) -> None:
        """Wait until this many events have been received."""
        async with self._news:
            await self._news.wait_for(lambda: self.seen.total() >= events)

    async def watch(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
            while True:
                if self.cut >= self.cuts:
                    await self._read(session)
                    continue
                try:
                    async with asyncio.timeout(self.rng.uniform(0.0, _CUT_S)):
                        await self._read(session)
                except TimeoutError:
                    self.cut += 1

    async def _read(self, session: aiohttp.ClientSession) -> None:
        headers = {"Last-Event-ID": self._last} if self._last else {}
        async with session.get(f"{self.url}/api/runs/-/events", headers=headers) as answer:
            connected = time.time()
            async for message in read_server_sent_events(answer):
                if message.event == "events":
                    self._count_events(message, connected)
                    async with self._news:
                        self._news.notify_all()

    def _count_events(self, message: ServerSentEvent, connected: float) -> None:
        now = time.time()
        for item in orjson.loads(message.data):
            event: Event = item["event"]
            self.seen[event_key(event)] += 1
            written = float(event["t"]) if isinstance(event["t"], int | float) else 0.0
            if written > connected:
                self.latencies_ms.append(1000 * (now - written))
        self._last = message.id


async def read_server_sent_events(answer: aiohttp.ClientResponse) -> AsyncIterator[ServerSentEvent]:
    """Yield complete messages; a message that breaks off does not count, as in a browser."""
    name = id_ = ""
    data = b""
    rest = b""
    async for chunk in answer.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            field_, _, value = line.partition(b": ")
            if not line and name:
                yield ServerSentEvent(id_, name, data)
                name, id_, data = "", "", b""
            elif field_ == b"event":
                name = value.decode()
            elif field_ == b"id":
                id_ = value.decode()
            elif field_ == b"data":
                data = value


def event_key(event: Event) -> EventKey:
    """Return the identity of an event, which also differs between restarts of a process."""
    return event.get("writer"), event.get("seq"), event.get("t"), event.get("kind")


def count_written_events(run_dir: Path) -> Counter[EventKey]:
    """Return the identities of all events in the files."""
    found: Counter[EventKey] = Counter()
    for path in (run_dir / "events").glob("*.jsonl"):
        found.update(event_key(orjson.loads(line)) for line in read_lines(path))
    return found
