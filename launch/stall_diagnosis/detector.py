"""Notices that a run makes no progress, and has it told why, once.

Progress is whatever brings the run on: an episode's turn, a trajectory, a group, a step, weights, an evaluation's
attempt, and the engines' tokens beside.  A run that is paused is not to make any.  What is done about a hang is for the
deadlines of who waits; this only looks.
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
    "learner.step", "weights.published", "weights.copied", "engine.load", "engine.onloaded", "checkpoint.saved",
    "eval.progress", "eval.finished", "scheduler.flow", "learner.restarted",
})  # fmt: skip
"""Kinds of events."""
STALL_ALERT = "stalled"
_LOOK_S = 5.0


@dataclass(slots=True, kw_only=True)
class StallDetector:
    events: EventLog
    limit_s: Callable[[], float]
    """Without progress for so long it is told; 0 for never."""
    sampled_tokens: Callable[[], Awaitable[int]]
    """Tokens of all engines so far."""
    report: Callable[[], Awaitable[tuple[str, str]]]
    """Who waits for whom, and the file that has the rest."""
    now: Callable[[], float] = time.monotonic
    _last: float = field(init=False)
    _tokens: int = -1
    _paused: bool = False
    _told: bool = False

    def __post_init__(self) -> None:
        self._last = self.now()

    def observe_event(self, event: Event) -> None:
        """What the run has said."""
        kind = get_text(event, "kind")
        if kind == "scheduler.flow":
            self._paused = get_text(event, "flow") == "pause"
        if kind in PROGRESS_EVENTS:
            self._progressed()

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await self.check_progress()
            await asyncio.sleep(_LOOK_S)

    async def check_progress(self) -> None:
        """Once."""
        if (tokens := await self.sampled_tokens()) != self._tokens or self._paused:
            self._tokens = tokens
            self._progressed()
        limit_s, stood_s = self.limit_s(), self.now() - self._last
        if not limit_s or self._told or stood_s < limit_s:
            return
        self._told = True
        try:
            line, path = await self.report()
        except Exception as error:  # noqa: BLE001  # the boundary: who cannot tell why a run hangs does not end it
            line, path = f"and why could not be found ({type(error).__name__}: {error})", ""
        self.events.emit("run.stalled", seconds=round(stood_s, 1), text=line, path=path)
        said = f"no progress for {stood_s:.0f} s: {line}" + (f" (all stacks: {path})" if path else "")
        self.events.emit("alert.raised", name=STALL_ALERT, text=said, health=True)

    def _progressed(self) -> None:
        self._last = self.now()
        if self._told:
            self._told = False
            self.events.emit("alert.resolved", name=STALL_ALERT)
