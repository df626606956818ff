"""The runs that are followed: the one that the monitor was started on, and those beside it that somebody looks at.

Each has one poller, which every reader waits for and none can slow.  A run beside is opened when it is asked for; those
that were not for longest are let go of.  All pollers end with :meth:`Runs.following`.
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
_MAX_BESIDE = 3


class WatchedRun:
    """A run and who waits for news of it."""

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
        """Wait for another revision than this one, and return whether it came in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.follower.revision != revision)
        return self.follower.revision != revision

    async def encoded_state(self) -> bytes:
        """The whole view; made once for each revision, and for nobody who does not ask."""
        revision = self.follower.revision
        if self._state_of != revision:
            self._state, self._state_of = await asyncio.to_thread(self.follower.encode_view), revision
        return self._state


class WatchedRuns:
    """See the module."""

    def __init__(self, current: RunFollower) -> None:
        self.current = WatchedRun(current)
        self._folder = current.run_dir.resolve().parent
        self._beside: dict[str, WatchedRun] = {}
        self._opening = asyncio.Lock()
        self._group: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def run_pollers(self) -> AsyncGenerator[None]:
        """Pollers run within."""
        await asyncio.to_thread(self.current.follower.load_initial)
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._start(self.current)
            try:
                yield
            finally:
                self._group = None
                for watched in (self.current, *self._beside.values()):
                    _stop(watched)

    def list_cards(self) -> list[RunCard]:
        """Return a card for every run of the folder, and for the current run even without a record."""
        found = list_run_cards(self._folder)
        if all(card.id != self.current.follower.name for card in found):
            found.insert(0, read_run_card(self.current.follower.run_dir))
        return found

    async def open_run(self, name: str) -> WatchedRun:
        """A run by its id.  Raises ApiError where there is none, or it has been removed."""
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
            if name in self._beside:
                return self._beside[name]
            path = self._folder / name
            if not RUN_ID_PATTERN.fullmatch(name) or not (path / CONFIG_FILE).is_file():
                raise ApiError(404, f"there is no run {name[:80]!r} in {self._folder}; /api/runs lists them")
            try:
                watched = WatchedRun(await asyncio.to_thread(RunFollower, path))
            except (NoSuchRunError, OSError) as error:
                raise ApiError(404, str(error)) from error
            await asyncio.to_thread(watched.follower.load_initial)
            self._start(watched)
            self._beside[name] = watched
            if len(self._beside) > _MAX_BESIDE:
                self._forget(min(self._beside, key=lambda each: self._beside[each].used_at))
            return watched

    def _start(self, watched: WatchedRun) -> None:
        if self._group is None:
            raise ApiError(503, "the monitor is ending")
        watched.poller = self._group.create_task(watched.poll_forever())

    def _forget(self, name: str) -> None:
        if (watched := self._beside.pop(name, None)) is not None:
            _stop(watched)


def _stop(watched: WatchedRun) -> None:
    if watched.poller is not None:
        watched.poller.cancel()
