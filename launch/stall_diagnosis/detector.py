"""Detects that a run makes no progress, and reports each stall once.

Progress is an episode's turn, a trajectory, a group, a step, new weights, an evaluation's attempt, or new tokens of the
engines.  A paused run is not expected to make any.  It only reports; deadlines elsewhere end hanging calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from protocol.events import EventLog
from protocol.run_directory.json_fields import Event, get_text

PROGRESS_EVENTS = frozenset({
    "run.phase", "warm_start.progress", "node.up", "worker.started", "engine.started", "engine.restarted",
    "episode.started", "episode.turn", "episode.tool", "episode.finished", "trajectory.stored", "group.closed",
    "learner.step", "weights.published", "weights.copied", "engine.loaded", "engine.onloaded", "checkpoint.saved",
    "evaluation.progress", "evaluation.finished", "scheduler.flow", "learner.restarted",
})  # fmt: skip
"""Kinds of events that count as progress."""
STALL_ALERT = "stalled"
_CHECK_INTERVAL_S = 5.0


@dataclass(slots=True, kw_only=True)
class StallDetector:
    """Reports a stall when there was no progress for ``limit_s``."""

    events: EventLog
    limit_s: Callable[[], float]
    """Returns the seconds without progress after which a stall is reported; 0 for never."""
    sampled_tokens: Callable[[], Awaitable[int]]
    """Returns the number of tokens that all engines have sampled so far."""
    report: Callable[[], Awaitable[tuple[str, str]]]
    """Returns the line that says who waits for whom, and the path of the report file."""
    now: Callable[[], float] = time.monotonic
    _last: float = field(init=False)
    _tokens: int = -1
    _paused: bool = False
    _reported: bool = False

    def __post_init__(self) -> None:
        self._last = self.now()

    def observe_event(self, event: Event) -> None:
        """Take an event of the run into account."""
        kind = get_text(event, "kind")
        if kind == "scheduler.flow":
            self._paused = get_text(event, "flow") == "pause"
        if kind in PROGRESS_EVENTS:
            self._progressed()

    async def watch(self) -> None:
        """Check periodically until cancelled."""
        while True:
            await self.check_progress()
            await asyncio.sleep(_CHECK_INTERVAL_S)

    async def check_progress(self) -> None:
        """Check once, and report a new stall."""
        if (tokens := await self.sampled_tokens()) != self._tokens or self._paused:
            self._tokens = tokens
            self._progressed()
        limit_s, stalled_s = self.limit_s(), self.now() - self._last
        if not limit_s or self._reported or stalled_s < limit_s:
            return
        self._reported = True
        try:
            line, path = await self.report()
        except Exception as error:  # noqa: BLE001  the boundary: a failed diagnosis must not end the run
            line, path = f"the diagnosis failed ({type(error).__name__}: {error})", ""
        self.events.emit("run.stalled", seconds=round(stalled_s, 1), text=line, path=path)
        text = f"no progress for {stalled_s:.0f} s: {line}" + (f" (all stacks: {path})" if path else "")
        self.events.emit("alert.raised", name=STALL_ALERT, text=text, health=True)

    def _progressed(self) -> None:
        self._last = self.now()
        if self._reported:
            self._reported = False
            self.events.emit("alert.resolved", name=STALL_ALERT)
