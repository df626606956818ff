"""A terminal that reports on its worker's activity timeline when a tool runs and when an episode is graded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.rollout.terminal import EpisodeGrade, EpisodeTerminal, ToolCallResult
from protocol.activity import ActivityLog


@dataclass(frozen=True, slots=True)
class TimedTerminal:
    """An :class:`actors.rollout.terminal.EpisodeTerminal` around another."""

    inner: EpisodeTerminal
    activity: ActivityLog

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        with self.activity.track("tool"):
            return await self.inner.call(name, arguments, on_output)

    async def grade(self) -> EpisodeGrade:
        with self.activity.track("grading"):
            return await self.inner.grade()
