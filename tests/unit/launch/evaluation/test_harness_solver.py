"""If these fail, a harness that never reached the model is scored as one that did, or what it cost is not counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from actors.gateway.chat_request import ChatTool
from actors.gateway.exchanges import WorkConversation
from actors.rewards.episode_result import ModelTurn, ToolCallRecord
from actors.rollout.harness import HarnessRun
from actors.rollout.terminal import SandboxDestroyedByAgent
from actors.tokens.chat_messages import ChatMessage
from launch.evaluation.solvers.harnesses import HarnessSolverRun
from protocol.errors import InfraError
from protocol.evaluation import AttemptUsage
from protocol.trajectory import EpisodeStatus, Segment
from sandbox.tasks.task import Task

TASK = Task("t", "Do it.")
TOOL = ChatTool("shell", "", {})
MESSAGES: list[ChatMessage] = [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": "b"}]
TURNS = (ModelTurn("a", (ToolCallRecord("shell", "ls"), ToolCallRecord("shell", "id"))), ModelTurn("b", malformed=True))


@dataclass
class FakeLine:
    model_turns: Sequence[ModelTurn]
    prompt_tokens: int = 30
    sampled_tokens: int = 7
    waited_s: float = 0.0
    limit: EpisodeStatus | None = None
    last_error: InfraError | None = None
    last_content: str = "b"
    work: WorkConversation = field(default_factory=lambda: WorkConversation(MESSAGES, (TOOL,)))

    def all_turns(self) -> Sequence[ModelTurn]:
        return self.model_turns

    def turns(self) -> Sequence[ModelTurn]:
        return self.model_turns

    def segments(self) -> Sequence[Segment]:
        return ()

    def begin_step(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class FakeActing:
    fails: Exception | None = None
    exit_summary: str = "exit code 127"

    async def play(self, _: Task) -> EpisodeStatus:
        if self.fails is not None:
            raise self.fails
        return EpisodeStatus.TURN_LIMIT


def harnessed(line: FakeLine, fails: Exception | None = None) -> HarnessSolverRun:
    return HarnessSolverRun(cast("HarnessRun", FakeActing(fails)), line)


async def test_the_turns_and_usage_of_a_harness_are_counted() -> None:
    attempt = harnessed(FakeLine(TURNS))
    assert await attempt.play(TASK) is EpisodeStatus.TURN_LIMIT
    assert (attempt.turns, attempt.final_answer) == (TURNS, "b")
    assert attempt.usage == AttemptUsage(
        turns=2, tool_calls=2, max_parallel_calls=2, malformed_turns=1, prompt_tokens=30, completion_tokens=7
    )
    assert attempt.trajectory_json() == {"messages": MESSAGES, "tools": [TOOL.schema], "segments": []}


@pytest.mark.parametrize(
    ("fails", "why"), [(None, "exit code 127"), (SandboxDestroyedByAgent("PID 1 is gone"), "PID 1 is gone")]
)
async def test_a_harness_that_never_got_a_reply_has_no_verdict(fails: Exception | None, why: str) -> None:
    with pytest.raises(InfraError, match=f"without a reply from the policy: {why}"):
        await harnessed(FakeLine(()), fails).play(TASK)


async def test_a_harness_that_destroys_its_sandbox_is_graded_for_it() -> None:
    with pytest.raises(SandboxDestroyedByAgent):
        await harnessed(FakeLine(TURNS), SandboxDestroyedByAgent("PID 1 is gone")).play(TASK)
