"""Learner ranks in Ray's processes: one that hangs is found, and a checkpoint is written beside other calls."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from actors.runtime.remote import ActorOptions, kill_actor, spawn_actor
from actors.runtime.remote_errors import RemoteError
from launch.actor_group import learner_group as module
from launch.actor_group.learner_group import LearnerGroup
from learner.rank import LearnerRank
from protocol.files.digests import find_damage
from protocol.processes.loopback import find_free_port
from tests.integration.actors.engines import tiny_qwen
from tests.support.runs.learner_specs import make_spec

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_node")]


@pytest.mark.parametrize(
    ("call_timeout_s", "named"),
    [(3.0, "learner-0, learner-1"), (500.0, "learner-1")],
    ids=["found by the call's deadline", "found by an exchange's"],
)
@pytest.mark.slow
async def test_a_hung_rank_is_named_and_all_ranks_dump_their_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call_timeout_s: float, named: str
) -> None:
    tiny_qwen.write_random(tmp_path / "model")
    spec = make_spec(model_path=str(tmp_path / "model"), device="cpu", tp=2, threads=1, call_timeout_s=25)
    stacks, port = tuple(tmp_path / "logs" / f"learner-{rank}.1.stacks" for rank in range(2)), find_free_port()
    ranks = tuple(
        spawn_actor(
            LearnerRank,
            ActorOptions(name=f"run/{named}/learner-{rank}", concurrent_calls=2, env={"CUDA_VISIBLE_DEVICES": ""}),
            spec,
            rank,
            2,
            "127.0.0.1",
            port,
            stacks=str(stacks[rank]),
        )
        for rank in range(2)
    )
    learners = LearnerGroup(ranks, 500.0, stacks)
    await learners.call(LearnerRank.setup)

    await learners.call(LearnerRank.begin_save, str(tmp_path / "checkpoint"))
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(learners.call_concurrently(LearnerRank.end_save))
        before = await learners.call(LearnerRank.weights_digest)
    assert writing.result().keys() >= {"common.pt", ".metadata", "__0_0.distcp", "__1_0.distcp"}
    assert find_damage(tmp_path / "checkpoint", writing.result()) is None
    await learners.call(LearnerRank.load, str(tmp_path / "checkpoint"))
    assert await learners.call(LearnerRank.weights_digest) == before

    monkeypatch.setattr(module, "OTHER_RANKS_S", 1.0)
    os.kill(await ranks[1].pid(), signal.SIGSTOP)
    with pytest.raises(RemoteError) as caught:
        await replace(learners, call_timeout_s=call_timeout_s).call(LearnerRank.weights_digest)
    assert f"no answer from {named} (learner-1 was stopped (SIGSTOP))" in caught.value.why
    assert f"stacks of all ranks: {tmp_path / 'logs'}" in caught.value.why
    assert all("hread 0x" in path.read_text() for path in stacks)
    for rank in ranks:
        kill_actor(rank)
