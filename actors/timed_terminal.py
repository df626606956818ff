"""A terminal that says on its worker's lane when a tool runs, and when an episode is graded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.episode import Graded, Terminal, ToolOutcome
from protocol.lanes import LaneLog


@dataclass(frozen=True, slots=True)
class TimedTerminal:
    """A :class:`actors.episode.Terminal` around another."""

    inner: Terminal
    lane: LaneLog

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolOutcome:
        with self.lane.during("tool"):
            return await self.inner.call(name, arguments, on_output)

    async def grade(self) -> Graded:
        with self.lane.during("grading"):
            return await self.inner.grade()
