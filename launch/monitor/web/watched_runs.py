"""The followed runs: the one that the monitor was started on, and other runs of its folder that clients read.

Each run has one poller.  Another run is opened when it is first requested, and the least recently used one is closed
when there are too many.  All pollers end with :meth:`WatchedRuns.run_pollers`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from launch.monitor.api_types import RunCard
from launch.monitor.archive.run_cards import list_run_cards, read_run_card
from launch.monitor.run_follower import RunFollower
from launch.monitor.web.responses import ApiError
from protocol.run_directory.layout import CONFIG_FILE, RUN_ID_PATTERN, NoSuchRunError

POLL_S = 0.5
CURRENT = "-"
_MAX_OTHERS = 3


class WatchedRun:
    """A followed run, with its poller and the readers that wait for changes."""

    def __init__(self, follower: RunFollower) -> None:
        self.follower = follower
        self.used_at = time.monotonic()
        self._changed = asyncio.Condition()
        self._state, self._state_of = b"", -1
        self.poller: asyncio.Task[None] | None = None

    async def poll_forever(self) -> None:
        """Poll until cancelled."""
        while True:
            before = self.follower.revision
            more = await asyncio.to_thread(self.follower.poll)
            if self.follower.revision != before:
                async with self._changed:
                    self._changed.notify_all()
            await asyncio.sleep(0 if more else POLL_S)

    async def wait_for_change(self, revision: int, timeout_s: float) -> bool:
        """Wait for a change since this revision, and return whether it came in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.follower.revision != revision)
        return self.follower.revision != revision

    async def encoded_state(self) -> bytes:
        """Return the encoded view, which is made once per revision and only on request."""
        revision = self.follower.revision
        if self._state_of != revision:
            self._state, self._state_of = await asyncio.to_thread(self.follower.encode_view), revision
        return self._state


class WatchedRuns:
    """The runs that this monitor follows."""

    def __init__(self, current: RunFollower) -> None:
        self.current = WatchedRun(current)
        self._folder = current.run_dir.resolve().parent
        self._others: dict[str, WatchedRun] = {}
        self._opening = asyncio.Lock()
        self._group: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def run_pollers(self) -> AsyncGenerator[None]:
        """Run the pollers while the body runs."""
        await asyncio.to_thread(self.current.follower.load_initial)
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._start(self.current)
            try:
                yield
            finally:
                self._group = None
                for watched in (self.current, *self._others.values()):
                    _stop(watched)

    def list_cards(self) -> list[RunCard]:
        """Return a card for every run of the folder, and for the current run even without a record."""
        found = list_run_cards(self._folder)
        if all(card.id != self.current.follower.name for card in found):
            found.insert(0, read_run_card(self.current.follower.run_dir))
        return found

    async def open_run(self, name: str) -> WatchedRun:
        """Return a run by its id.  Raises ApiError if there is none, or if it was removed."""
        watched = await self._opened(name)
        watched.used_at = time.monotonic()
        if watched.follower.is_gone:
            self._forget(name)
            raise ApiError(410, watched.follower.head().problem)
        return watched

    async def _opened(self, name: str) -> WatchedRun:
        if name in {CURRENT, self.current.follower.name}:
            return self.current
        async with self._opening:
            if name in self._others:
                return self._others[name]
            path = self._folder / name
            if not RUN_ID_PATTERN.fullmatch(name) or not (path / CONFIG_FILE).is_file():
                raise ApiError(404, f"there is no run {name[:80]!r} in {self._folder}; /api/runs lists them")
            try:
                watched = WatchedRun(await asyncio.to_thread(RunFollower, path))
            except (NoSuchRunError, OSError) as error:
                raise ApiError(404, str(error)) from error
            await asyncio.to_thread(watched.follower.load_initial)
            self._start(watched)
            self._others[name] = watched
            if len(self._others) > _MAX_OTHERS:
                self._forget(min(self._others, key=lambda each: self._others[each].used_at))
            return watched

    def _start(self, watched: WatchedRun) -> None:
        if self._group is None:
            raise ApiError(503, "the monitor is shutting down")
        watched.poller = self._group.create_task(watched.poll_forever())

    def _forget(self, name: str) -> None:
        if (watched := self._others.pop(name, None)) is not None:
            _stop(watched)


def _stop(watched: WatchedRun) -> None:
    if watched.poller is not None:
        watched.poller.cancel()
