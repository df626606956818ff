"""If these fail, a harness that never reached the model is scored as one that did, or what it cost is not counted."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import pytest

from actors.episode import SandboxGone
from actors.harness import HarnessActing
from actors.rewards.played import Call, ModelTurn
from launch.evaluate.attempts import Effort
from launch.evaluate.harnessed import Begun, Harnessed
from protocol.errors import InfraError
from protocol.trajectory import Segment, Status

TURNS = (ModelTurn("a", (Call("shell", "ls"), Call("shell", "id"))), ModelTurn("b", malformed=True))


@dataclass
class FakeLine:
    said: Sequence[ModelTurn]
    prompt_tokens: int = 30
    sampled_tokens: int = 7
    waited_s: float = 0.0
    limit: Status | None = None
    trouble: InfraError | None = None
    last_words: str = "b"
    is_open: bool = False

    def turns(self) -> Sequence[ModelTurn]:
        return self.said

    def segments(self) -> Sequence[Segment]:
        return ()

    def end(self) -> None: ...


@dataclass
class FakeActing:
    line: FakeLine
    fails: Exception | None = None
    ended_with: str = "exit code 127"

    async def run(self) -> Status:
        assert self.line.is_open, "it asks while nobody listens"
        if self.fails is not None:
            raise self.fails
        return Status.TURN_LIMIT


def harnessed(line: FakeLine, fails: Exception | None = None) -> Harnessed:
    @contextmanager
    def begin() -> Generator[Begun]:
        line.is_open = True
        yield Begun(cast("HarnessActing", FakeActing(line, fails)), line)
        line.is_open = False

    return Harnessed(begin)


async def test_what_a_harness_did_is_counted() -> None:
    line = FakeLine(TURNS)
    attempt = harnessed(line)
    assert (attempt.turns, attempt.last_words, attempt.effort) == ((), "", Effort())
    assert await attempt.run() is Status.TURN_LIMIT
    assert not line.is_open
    assert (attempt.turns, attempt.last_words) == (TURNS, "b")
    assert attempt.effort == Effort(turns=2, calls=2, widest=2, malformed=1, prompt_tokens=30, completion_tokens=7)
    assert attempt.told() == {
        "messages": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
        "segments": [],
    }


@pytest.mark.parametrize(("fails", "why"), [(None, "exit code 127"), (SandboxGone("PID 1 is gone"), "PID 1 is gone")])
async def test_one_that_never_had_a_reply_has_no_verdict(fails: Exception | None, why: str) -> None:
    with pytest.raises(InfraError, match=f"without an answer of the policy's: {why}"):
        await harnessed(FakeLine(()), fails).run()


async def test_one_that_destroys_its_sandbox_is_graded_for_it() -> None:
    with pytest.raises(SandboxGone):
        await harnessed(FakeLine(TURNS), SandboxGone("PID 1 is gone")).run()
