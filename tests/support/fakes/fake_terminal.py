"""A terminal without a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.rollout.terminal import EpisodeGrade, SandboxDestroyedByAgent, ToolCallResult
from protocol.trajectory import TestResult


@dataclass
class FakeTerminal:
    """Answers every command with its text; passes the first of two tests."""

    text: str = "out"
    destroyed_at: int = 99
    """The call at which the agent has destroyed its sandbox."""
    calls: int = 0

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        self.calls += 1
        if self.calls >= self.destroyed_at:
            raise SandboxDestroyedByAgent("PID 1 is gone")
        return ToolCallResult(self.text, self.text, 0, 5.0)

    async def grade(self) -> EpisodeGrade:
        return EpisodeGrade((TestResult("a", True), TestResult("b", False)), 0.5, False, 2.0, score=0.5)
