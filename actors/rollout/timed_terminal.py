"""A terminal that says on its worker's lane when a tool runs, and when an episode is graded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.rollout.episode import EpisodeGrade, EpisodeTerminal, ToolCallResult
from protocol.activity import ActivityLog


@dataclass(frozen=True, slots=True)
class TimedTerminal:
    """A :class:`actors.rollout.episode.Terminal` around another."""

    inner: EpisodeTerminal
    activity: ActivityLog

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        with self.activity.track("tool"):
            return await self.inner.call(name, arguments, on_output)

    async def grade(self) -> EpisodeGrade:
        with self.activity.track("grading"):
            return await self.inner.grade()
