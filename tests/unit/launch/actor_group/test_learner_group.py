"""If these fail, a rank that dies ends the run, because another rank complains of it first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from actors.runtime.remote_errors import ActorDied, RemoteError
from launch.actor_group import learner_group
from launch.actor_group.learner_group import LearnerGroup
from learner.rank import LearnerRank
from protocol.processes.stack_dumps import register_stack_dump
from tests.support.actors.local_actors import LocalRemote


@dataclass
class FakeRank:
    failure: Exception | None = None
    after_s: float = 0.0

    async def setup(self) -> str:
        await asyncio.sleep(self.after_s)
        if self.failure is not None:
            raise self.failure
        return "done"


def ranks(*fakes: FakeRank, timeout_s: float = 60.0) -> LearnerGroup:
    return LearnerGroup(tuple(LocalRemote(fake, f"run/learner-{index}") for index, fake in enumerate(fakes)), timeout_s)


async def test_rank_0_answers() -> None:
    assert await ranks(FakeRank(), FakeRank(after_s=0.01)).call(LearnerRank.setup) == "done"


async def test_a_dead_rank_is_the_reported_cause_even_if_the_exchange_of_another_rank_fails_first() -> None:
    died = ActorDied("run/learner-1", "killed")
    with pytest.raises(ActorDied):
        await ranks(FakeRank(RuntimeError("connection closed by peer")), FakeRank(died, 0.05)).call(LearnerRank.setup)


async def test_a_defect_is_raised_unchanged_after_a_short_wait_for_hanging_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learner_group, "OTHER_RANKS_S", 0.01)
    with pytest.raises(ZeroDivisionError):
        await ranks(FakeRank(ZeroDivisionError()), FakeRank(after_s=600.0)).call(LearnerRank.setup)


async def test_ranks_that_hang_are_named_with_their_limit() -> None:
    hang = ranks(FakeRank(), FakeRank(after_s=600.0), FakeRank(after_s=600.0), timeout_s=0.01)
    with pytest.raises(
        RemoteError, match=r"setup .* learner\.call_timeout_s = 0\.01 s: .* learner-1, learner-2$"
    ) as caught:
        await hang.call(LearnerRank.setup)
    assert caught.value.actor == "run/learner-1"


async def test_the_hanging_rank_is_named_and_not_the_rank_that_waited_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, a hanging rank ends the run with the error of another rank, and is not restarted."""
    monkeypatch.setattr(learner_group, "OTHER_RANKS_S", 0.01)
    waited = RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 20000ms for recv operation")
    with pytest.raises(RemoteError, match=r"no answer from learner-1$") as caught:
        await ranks(FakeRank(waited), FakeRank(after_s=600.0)).call(LearnerRank.setup)
    assert caught.value.actor == "run/learner-1"
    with pytest.raises(RemoteError, match=r"a collective between ranks failed: .*Timed out"):
        await ranks(FakeRank(waited), FakeRank(waited)).call(LearnerRank.setup)


async def test_ranks_that_hang_are_asked_for_their_stacks(tmp_path: Path) -> None:
    register_stack_dump(tmp_path / "learner-0.stacks", "learner-0")
    hang = replace(ranks(FakeRank(after_s=600.0), timeout_s=0.01), stacks=(tmp_path / "learner-0.stacks",))
    with pytest.raises(RemoteError, match=rf"no answer from learner-0; stacks of all ranks: {tmp_path}$"):
        await hang.call_concurrently(LearnerRank.setup)
    assert "in test_ranks_that_hang" in (tmp_path / "learner-0.stacks").read_text()
