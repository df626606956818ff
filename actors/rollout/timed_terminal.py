"""A terminal that records tool calls and grading on its worker's activity timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.rollout.terminal import EpisodeGrade, EpisodeTerminal, ToolCallResult
from protocol.activity import ActivityLog


@dataclass(frozen=True, slots=True)
class TimedTerminal:
    """Wraps an :class:`actors.rollout.terminal.EpisodeTerminal`."""

    inner: EpisodeTerminal
    activity: ActivityLog

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        with self.activity.track("tool"):
            return await self.inner.call(name, arguments, on_output)

    async def grade(self, last_reply: str) -> EpisodeGrade:
        with self.activity.track("grading"):
            return await self.inner.grade(last_reply)
