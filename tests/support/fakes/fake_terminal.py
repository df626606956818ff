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
    steps: int = 1
    """Number of gradings after which no step follows."""
    graded: int = 0
    calls: int = 0

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        self.calls += 1
        if self.calls >= self.destroyed_at:
            raise SandboxDestroyedByAgent("PID 1 is gone")
        return ToolCallResult(self.text, self.text, 0, 5.0)

    async def grade(self, last_reply: str) -> EpisodeGrade:
        self.graded += 1
        goes_on = self.graded < self.steps
        tests = (TestResult("a", True), TestResult("b", False))
        rewards = dict.fromkeys("xyz"[: self.graded], 0.5) if self.steps > 1 else {}
        return EpisodeGrade(tests, 0.5, False, 2.0, score=0.5, step_rewards=rewards, goes_on=goes_on)
