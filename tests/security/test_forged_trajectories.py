"""Another local user, and a worker that lies, send the buffer what nobody asked for.

If this fails, strangers choose what the model learns, or end the run and every resume of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import orjson
import pytest

from actors.buffer.settings import BufferSettings, BufferSpec
from actors.buffer.trajectory_buffer import TrajectoryBuffer
from protocol.errors import UserError
from protocol.journal import AppendOutcome
from protocol.run_directory.lineage_log import LineageLog
from protocol.stream import MessageRefusedError, TrajectorySender
from protocol.stream.messages import RefusalReason
from protocol.trajectory import Reward, Segment, TestResult, Trajectory
from protocol.usability import TrajectoryLimits
from protocol.weights import NO_VERSION, LineageEntry, WeightVersion
from tests.support.other_user import needs_root, run_as_nobody
from tests.support.runs.trajectories import RUN, make_plan, make_segment, make_trajectory
from tests.support.stream_keys import RECEIVER_KEYS, SENDER_KEYS

SOON_S = 30.0
CONNECT = """
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    print(type(error).__name__)
"""


@contextlib.asynccontextmanager
async def running_buffer(run_dir: Path, *, unix_socket: Path | None = None) -> AsyncIterator[TrajectoryBuffer]:
    log = LineageLog(run_dir)
    log.append(LineageEntry(WeightVersion(0), 0, NO_VERSION))
    buffer = TrajectoryBuffer(
        BufferSpec(
            settings=BufferSettings(max_trajectory_bytes=10_000),
            run_id=RUN,
            run_dir=run_dir,
            node="node-0",
            host="127.0.0.1",
            unix_socket=unix_socket,
            curve=None if unix_socket else RECEIVER_KEYS,
            limits=TrajectoryLimits(vocabulary=1000, longest_sequence=100, most_segments=4),
            disk_floor_bytes=0,
            dynamic_sampling=True,
        )
    )
    try:
        yield buffer
    finally:
        await buffer.stop()


def of_segment(segment: Segment) -> Trajectory:
    return make_trajectory(0, 1, segments=(segment,))


def of_request(**changes: object) -> Trajectory:
    honest = make_trajectory(0, 1)
    return replace(honest, request=replace(honest.request, **changes))


def with_turn_reward(segment: Segment, reward: float) -> Segment:
    return replace(segment, turns=tuple(turn._replace(reward=reward) for turn in segment.turns))


VALUES = make_segment()
BRANCH = replace(make_segment(prompt=0, sampled=1), parent=0, offset=len(VALUES))
UNUSABLE = {
    "a version that was never published": of_segment(
        replace(VALUES, versions=np.where(VALUES.loss_mask == 1, 2**31 - 1, -1).astype(np.int32))
    ),
    "a token beyond the vocabulary": of_segment(replace(VALUES, token_ids=VALUES.token_ids + np.int32(1000))),
    "a probability above 1": of_segment(replace(VALUES, logprobs=-VALUES.logprobs)),
    "a sequence beyond the learner": of_segment(make_segment(sampled=98)),
    "many segments, each with the longest prefix": make_trajectory(0, 1, segments=(VALUES, *[BRANCH] * 4)),
    "a reward that makes a batch infinite": replace(make_trajectory(0, 1), reward=Reward(-1e308)),
    "a part of a reward that does": replace(make_trajectory(0, 1), reward=Reward(1.0, {"outcome": 1e308})),
    "a turn's reward that does": of_segment(with_turn_reward(VALUES, 1e308)),
    "a test's weight that does": replace(make_trajectory(0, 1), tests=(TestResult("test_one", True, 1e308),)),
}
UNPLANNED = {
    "another task": of_request(task="task-1"),
    "another seed": of_request(seed=-1),
    "another group size": of_request(group_size=5),
    "a sample that was not asked for": of_request(sample=3, group_size=5),
    "another group": of_request(group=9),
}


@pytest.mark.parametrize("forged", UNUSABLE)
async def test_what_the_learner_could_not_use_is_refused_with_a_reason(tmp_path: Path, forged: str) -> None:
    async with running_buffer(tmp_path) as buffer:
        endpoint = await buffer.start()
        await buffer.open_group(make_plan(0), b"")
        async with TrajectorySender(endpoint, RUN, "worker-0", curve=SENDER_KEYS) as sender:
            with pytest.raises(MessageRefusedError) as refused:
                await sender.send(UNUSABLE[forged], SOON_S)
            assert refused.value.reason is RefusalReason.UNUSABLE
            assert await sender.send(make_trajectory(0, 1), SOON_S) is AppendOutcome.APPENDED
        statistics = await buffer.statistics()
        assert statistics.receiver.refused == {RefusalReason.UNUSABLE: 1}
    lines = map(orjson.loads, (tmp_path / "events" / "buffer.jsonl").read_bytes().splitlines())
    (event,) = [line for line in lines if line["kind"] == "message.refused"]
    assert (event["reason"], event["sender"]) == ("unusable", "worker-0")
    assert "train-g000000-s01" in event["detail"]


@pytest.mark.parametrize("forged", UNPLANNED)
async def test_only_what_was_planned_is_stored(tmp_path: Path, forged: str) -> None:
    async with running_buffer(tmp_path) as buffer:
        endpoint = await buffer.start()
        await buffer.open_group(make_plan(0, 3), b"")
        async with TrajectorySender(endpoint, RUN, "worker-0", curve=SENDER_KEYS) as sender:
            assert await sender.send(UNPLANNED[forged], SOON_S) is AppendOutcome.UNKNOWN
            assert await sender.send(make_trajectory(0, 1, size=3), SOON_S) is AppendOutcome.APPENDED
            assert await sender.send(of_request(group_size=3, task="late"), SOON_S) is AppendOutcome.UNKNOWN
        accounting = await buffer.accounting()
        assert (accounting.acknowledged, accounting.unknown, accounting.superseded) == (1, 2, 0)


async def test_a_version_published_after_the_start_is_known(tmp_path: Path) -> None:
    async with running_buffer(tmp_path) as buffer:
        endpoint = await buffer.start()
        await buffer.open_group(make_plan(0), b"")
        later = of_segment(make_segment(version=1))
        async with TrajectorySender(endpoint, RUN, "worker-0", curve=SENDER_KEYS) as sender:
            with pytest.raises(MessageRefusedError):
                await sender.send(later, SOON_S)
            LineageLog(tmp_path).append(LineageEntry(WeightVersion(1), 1, WeightVersion(0)))
            assert await sender.send(later, SOON_S) is AppendOutcome.APPENDED


async def test_a_socket_is_not_opened_where_others_can_enter(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o755)
    async with running_buffer(tmp_path, unix_socket=folder / "buffer") as buffer:
        with pytest.raises(UserError, match="chmod 700"):
            await buffer.start()


@needs_root
async def test_another_user_of_the_machine_does_not_reach_the_buffer(tmp_path: Path) -> None:
    """The worker, of the same user, does."""
    with TemporaryDirectory(prefix="ls-") as private:
        path = Path(private) / "buffer"
        async with running_buffer(tmp_path, unix_socket=path) as buffer:
            endpoint = await buffer.start()
            assert await asyncio.to_thread(run_as_nobody, "import socket, sys", CONNECT, str(path)) == "PermissionError"
            await buffer.open_group(make_plan(0), b"")
            async with TrajectorySender(endpoint, RUN, "worker-0") as sender:
                assert await sender.send(make_trajectory(0, 1), SOON_S) is AppendOutcome.APPENDED
