"""If these fail, a rank that dies ends the run, because another rank complains of it first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from actors.remote import ActorDied, RemoteError
from launch import learners
from launch.learners import Learners
from learner.rank import LearnerRank
from tests.support.remotes import LocalRemote


@dataclass
class FakeRank:
    failure: Exception | None = None
    after_s: float = 0.0

    async def setup(self) -> str:
        await asyncio.sleep(self.after_s)
        if self.failure is not None:
            raise self.failure
        return "done"


def ranks(*fakes: FakeRank, timeout_s: float = 60.0) -> Learners:
    return Learners(tuple(LocalRemote(fake, f"run/learner-{index}") for index, fake in enumerate(fakes)), timeout_s)


async def test_rank_0_answers() -> None:
    assert await ranks(FakeRank(), FakeRank(after_s=0.01)).call(LearnerRank.setup) == "done"


async def test_a_death_is_the_cause_though_the_exchange_of_another_rank_fails_first() -> None:
    died = ActorDied("run/learner-1", "killed")
    with pytest.raises(ActorDied):
        await ranks(FakeRank(RuntimeError("connection closed by peer")), FakeRank(died, 0.05)).call(LearnerRank.setup)


async def test_a_defect_is_raised_as_it_is_and_waits_little_for_ranks_that_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learners, "_OTHERS_S", 0.01)
    with pytest.raises(ZeroDivisionError):
        await ranks(FakeRank(ZeroDivisionError()), FakeRank(after_s=600.0)).call(LearnerRank.setup)


async def test_ranks_that_hang_are_named_with_their_limit() -> None:
    with pytest.raises(RemoteError, match=r"setup has not ended within learner\.call_timeout_s = 0\.01 s"):
        await ranks(FakeRank(after_s=600.0), timeout_s=0.01).call(LearnerRank.setup)
