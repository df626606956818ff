"""If these fail, the learner waits for groups that have closed, or a restarted buffer has forgotten a promise."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import pickle
import sqlite3
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
import zmq

from actors.buffer.settings import BufferSettings, BufferSpec
from actors.buffer.task_records import TaskRecord
from actors.buffer.trajectory_buffer import TrajectoryBuffer
from protocol import codec
from protocol.errors import InfraError, UserError
from protocol.groups import GroupOutcome
from protocol.journal import (
    AppendOutcome,
    BudgetFullError,
    ClosedGroup,
    DiskFullError,
    Journal,
    JournalError,
    TrajectoryArrival,
)
from protocol.processes.loopback import find_free_port
from protocol.run_directory.lineage_log import LineageLog
from protocol.run_directory.trajectory_export import read_export_index, read_exported_trajectory
from protocol.stream import TrajectorySender, receiver
from protocol.stream.zmq_sockets import SocketMonitor
from protocol.trajectory import DropReason, GroupId, InfraFailure
from protocol.usability import TrajectoryLimits
from protocol.weights import NO_VERSION, LineageEntry, WeightVersion
from tests.support.runs.trajectories import RUN, assert_equal, make_plan, make_trajectory
from tests.support.stream_keys import RECEIVER_KEYS, SENDER_KEYS

SOON_S = 30.0
T = TypeVar("T")


def make_spec(run_dir: Path, *, run_id: str = RUN, **settings: int) -> BufferSpec:
    log = LineageLog(run_dir)
    if not log.size():
        log.append(LineageEntry(WeightVersion(0), 0, NO_VERSION))
    return BufferSpec(
        settings=BufferSettings(**({"max_trajectory_bytes": 10_000} | settings)),
        run_id=run_id,
        run_dir=run_dir,
        node="node-0",
        host="127.0.0.1",
        unix_socket=None,
        curve=RECEIVER_KEYS,
        limits=TrajectoryLimits(vocabulary=30_000, longest_sequence=30_000),
        disk_floor_bytes=0,
        dynamic_sampling=True,
    )


@contextlib.asynccontextmanager
async def running(spec: BufferSpec) -> AsyncIterator[tuple[TrajectoryBuffer, TrajectorySender]]:
    buffer = TrajectoryBuffer(spec)
    try:
        async with TrajectorySender(
            await buffer.start(), RUN, "worker-0", heartbeat_s=0.05, curve=SENDER_KEYS
        ) as sender:
            yield buffer, sender
    finally:
        await buffer.stop()


def _moved(value: T) -> T:
    """Pickle and unpickle the object as Ray does."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301  # written a moment ago


async def fill(
    buffer: TrajectoryBuffer, sender: TrajectorySender, group: int, rewards: tuple[float, ...] = (0, 1, 0, 1)
) -> None:
    await buffer.open_group(make_plan(group, len(rewards)), b"after %d" % group)
    async with asyncio.TaskGroup() as sends:
        for sample, reward in enumerate(rewards):
            sends.create_task(sender.send(make_trajectory(group, sample, reward=reward, size=len(rewards)), SOON_S))


def events(run_dir: Path) -> list[dict[str, object]]:
    """But the ends of connections, of which ZeroMQ tells when it likes."""
    lines = map(orjson.loads, (run_dir / "events" / "buffer.jsonl").read_bytes().splitlines())
    return [line for line in lines if line["kind"] not in {"peer.disconnected", "ack.unroutable"}]


async def test_a_group_goes_from_plan_to_training_and_is_accounted_for(tmp_path: Path) -> None:
    async with running(make_spec(tmp_path)) as (buffer, sender):
        await fill(buffer, sender, 0)
        lease = await buffer.lease_batch(1)
        assert lease is not None
        assert await buffer.lease_batch(2) is None
        payload = await buffer.read_payload(_moved(lease))
        assert_equal(codec.unpack_trajectory(payload[1]), make_trajectory(0, 1, reward=1))
        await buffer.mark_trained(1, lease.trajectory_ids[1:], {lease.trajectory_ids[0]: DropReason.ALL_STALE})
        await fill(buffer, sender, 1)
        await buffer.commit_step(1)
        await buffer.compact_before(1)
        accounting = await buffer.accounting()
        assert (accounting.acknowledged, accounting.trained, accounting.in_buffer) == (8, 3, 4)
        assert accounting.balanced
        await buffer.rewind_to_step(1)
        await buffer.end_run()
        assert (await buffer.accounting()).dropped == {DropReason.ALL_STALE: 1, DropReason.RUN_ENDED: 4}
    kinds = [event["kind"] for event in events(tmp_path)]
    assert kinds == [*["group.opened", *["trajectory.stored"] * 4, "group.closed"] * 2]
    acknowledged = events(tmp_path)[1]
    assert (acknowledged["outcome"], acknowledged["status"], acknowledged["tokens"], acknowledged["sampled"]) == (
        "appended",
        "completed",
        8,
        5,
    )
    assert (acknowledged["versions_min"], acknowledged["versions_max"]) == (0, 0)


async def test_a_closing_group_is_reported_to_the_scheduler_at_once(tmp_path: Path) -> None:
    async with running(make_spec(tmp_path)) as (buffer, sender):
        assert (await buffer.wait_progress(0, 0.0)).closed == ()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(buffer.wait_progress(0, SOON_S))
            tasks.create_task(fill(buffer, sender, 0, (1, 1, 1, 1)))
        progress = waiting.result()
        assert progress.seq == 1
        assert [(each.group, each.outcome) for each in progress.closed] == [(0, GroupOutcome.ZERO_VARIANCE)]
        assert (progress.dropped, progress.ready) == (1, 0)
        await fill(buffer, sender, 1)
        later = await buffer.wait_progress(progress.seq, SOON_S)
        assert [each.group for each in later.closed] == [1]
        assert (await buffer.wait_progress(0, 0.0)).seq == 2
        now = await buffer.wait_progress(-1, SOON_S)
        assert (now.seq, now.closed) == (2, ())


async def test_a_freed_budget_wakes_the_scheduler(tmp_path: Path) -> None:
    async with running(make_spec(tmp_path, budget_bytes=44_000)) as (buffer, sender):
        await fill(buffer, sender, 0)
        with pytest.raises(BudgetFullError):
            await buffer.open_group(make_plan(1, 5), b"1")
        lease = await buffer.lease_batch(1)
        assert lease is not None
        await buffer.mark_trained(1, lease.trajectory_ids, {})
        assert not (await buffer.statistics()).wants_checkpoint
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(buffer.wait_progress(1, SOON_S))
            tasks.create_task(buffer.commit_step(1))
        assert waiting.result().closed == ()
        await buffer.open_group(make_plan(1, 4), b"1")


async def test_a_learner_that_fills_half_the_budget_is_asked_for_a_checkpoint(tmp_path: Path) -> None:
    async with running(make_spec(tmp_path, max_trajectory_bytes=1500, budget_bytes=12_000)) as (buffer, sender):
        for group in range(100):
            await fill(buffer, sender, group)
            lease = await buffer.lease_batch(1)
            assert lease is not None
            await buffer.mark_trained(group + 1, lease.trajectory_ids, {})
            if (await buffer.statistics()).wants_checkpoint:
                break
            assert (await buffer.statistics()).journal.uncommitted_bytes <= 6_000
        assert (await buffer.statistics()).wants_checkpoint
        await buffer.commit_step(group + 1)
        assert not (await buffer.statistics()).wants_checkpoint


async def test_a_restarted_buffer_resumes_its_state_on_the_same_port(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    first = TrajectoryBuffer(spec)
    endpoint = await first.start()
    async with TrajectorySender(endpoint, RUN, "worker-0", heartbeat_s=0.05, curve=SENDER_KEYS) as sender:
        await fill(first, sender, 0)
        await first.open_group(make_plan(1), b"after 1")
        await sender.send(make_trajectory(1, 2), SOON_S)
        await first.abandon_sample(GroupId(1), 0, InfraFailure.ENGINE)
        await first.stop()
        with pytest.raises(InfraError, match="stopped"):
            await first.lease_batch(1)

        again = TrajectoryBuffer(spec)
        try:
            (group,) = await again.open_groups()  # the first call opens everything
            assert (group.plan, group.missing) == (make_plan(1), (1, 3))
            assert await again.sampler_state() == b"after 1"
            assert await again.start() == endpoint
            assert await again.lease_batch(1) is not None
            assert (await again.wait_progress(0, 0.0)).seq == 1
            await sender.send(make_trajectory(1, 3, reward=1.0), SOON_S)
            assert (await again.accounting()).acknowledged == 6
        finally:
            await again.stop()


async def test_a_receiver_that_cannot_start_raises_an_error_instead_of_hanging(tmp_path: Path) -> None:
    buffer = TrajectoryBuffer(replace(make_spec(tmp_path), curve=None))
    async with asyncio.timeout(SOON_S):
        for _ in range(2):
            with pytest.raises(UserError, match="keys"):
                await buffer.start()


async def test_a_receiver_without_a_free_socket_is_retried_on_the_same_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    def monitor(*given: Any) -> SocketMonitor:
        tries.append(given)
        if len(tries) == 1:
            raise zmq.ZMQError(errno.EMFILE)
        return SocketMonitor(*given)

    monkeypatch.setattr(receiver, "SocketMonitor", monitor)
    port = find_free_port()
    async with asyncio.timeout(SOON_S), running(make_spec(tmp_path, port=port)) as (buffer, sender):
        await fill(buffer, sender, 0)
        assert (await buffer.statistics()).endpoint == f"tcp://127.0.0.1:{port}"
    assert len(tries) == 2


async def test_task_records_cover_the_groups_closed_up_to_a_given_sequence_number(tmp_path: Path) -> None:
    async with running(make_spec(tmp_path)) as (buffer, sender):
        await fill(buffer, sender, 0, (1, 1, 0, 1))
        await fill(buffer, sender, 1, (0, 0, 0, 0))
        first, second = {"task-0": TaskRecord(4, 3.0)}, {"task-1": TaskRecord(4, 0.0)}
        assert [await buffer.task_records(upto) for upto in (0, 1, 2, 9)] == [{}, first, first | second, first | second]


@pytest.mark.parametrize("rewards", [(0, 1, 0, 1), (1, 1, 1, 1)])
async def test_exports_are_readable_without_the_journal_and_a_crash_leaves_no_gap(
    tmp_path: Path, rewards: tuple[float, ...]
) -> None:
    """Nor does one that comes between the append that drops a group and its export."""
    spec = make_spec(tmp_path)
    async with running(spec) as (buffer, sender):
        await fill(buffer, sender, 0, rewards)
    index = tmp_path / "trajectories" / "index.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(b"".join(lines[:2]) + lines[2][:10])
    async with running(spec) as (buffer, sender):
        await fill(buffer, sender, 1)
        assert (await buffer.statistics()).export_failures == 0
    entries = list(read_export_index(tmp_path))
    assert sorted((entry.group, entry.sample) for entry in entries) == [(g, s) for g in (0, 1) for s in range(4)]
    for entry in entries:
        trajectory = read_exported_trajectory(tmp_path, entry)
        assert trajectory.request.trajectory_id == entry.trajectory
        assert (trajectory.reward.total, trajectory.request.task) == (entry.reward, entry.task)
        assert (trajectory.tokens, trajectory.sampled_tokens) == (entry.tokens, entry.sampled)
        assert (trajectory.passed, trajectory.request.attempt) == (entry.passed, entry.attempt)
        assert entry.at is not None


async def test_a_failed_export_loses_no_trajectory(tmp_path: Path) -> None:
    (tmp_path / "trajectories").write_text("in the way")
    async with running(make_spec(tmp_path)) as (buffer, sender):
        await fill(buffer, sender, 0)
        assert (await buffer.accounting()).acknowledged == 4
        assert (await buffer.statistics()).export_failures > 0


async def test_a_buffer_opens_despite_a_damaged_trajectory_not_yet_exported(tmp_path: Path) -> None:
    """The others can be trained; who leases this one is told what to do."""
    spec = make_spec(tmp_path)
    async with running(spec) as (buffer, sender):
        await fill(buffer, sender, 0)
    (tmp_path / "trajectories" / "index.jsonl").write_bytes(b"")
    journal = tmp_path / "buffer" / "journal.sqlite"
    with contextlib.closing(sqlite3.connect(journal)) as database:
        database.execute("UPDATE payloads SET blob = zeroblob(length(blob)) WHERE trajectory = 'train-g000000-s02'")
        database.commit()
    async with running(spec) as (buffer, _):
        assert (await buffer.statistics()).export_failures == 1
        assert [entry.sample for entry in read_export_index(tmp_path)] == [0, 1, 3]
        lease = await buffer.lease_batch(1)
        assert lease is not None
        with pytest.raises(JournalError, match="journal recover"):
            await buffer.read_payload(lease)


async def test_a_temporarily_full_disk_is_recorded_in_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the events would not explain afterwards why workers stood still."""
    append, full = Journal.append_batch, ["full", "still full"]

    def fails(journal: Journal, arrivals: Sequence[TrajectoryArrival]) -> tuple[list[AppendOutcome], list[ClosedGroup]]:
        if full:
            raise DiskFullError(full.pop(0))
        return append(journal, arrivals)

    monkeypatch.setattr(Journal, "append_batch", fails)
    async with running(make_spec(tmp_path)) as (buffer, sender):
        await buffer.open_group(make_plan(0), b"")
        await sender.send(make_trajectory(0, 0), SOON_S)
    alerts = [(line["kind"], line["reason"]) for line in events(tmp_path) if str(line["kind"]).startswith("disk.")]
    assert alerts == [("disk.full", "full"), ("disk.freed", "full")]


async def test_an_older_copy_of_the_journal_is_refused(tmp_path: Path) -> None:
    """Otherwise trajectories acknowledged since would be lost silently and their names reused."""
    spec, journal = make_spec(tmp_path), tmp_path / "buffer" / "journal.sqlite"
    async with running(spec) as (buffer, sender):
        await fill(buffer, sender, 0)
    older = journal.read_bytes()
    async with running(spec) as (buffer, sender):
        await fill(buffer, sender, 1)
    journal.write_bytes(older)
    with pytest.raises(UserError, match=r"lacks train-g000001-s0.*Put the right one back.*move .*trajectories"):
        await TrajectoryBuffer(spec).start()
    (tmp_path / "trajectories").rename(tmp_path / "aside")
    async with running(spec) as (buffer, sender):
        await fill(buffer, sender, 1)
        assert (await buffer.accounting()).acknowledged == 8


async def test_a_trajectory_of_an_unknown_group_is_reported_and_not_acknowledged(tmp_path: Path) -> None:
    async with running(make_spec(tmp_path)) as (buffer, sender):
        assert await sender.send(make_trajectory(9, 0), SOON_S) == "unknown"
        accounting = await buffer.accounting()
        assert (accounting.acknowledged, accounting.unknown) == (0, 1)
    (refused,) = events(tmp_path)
    assert (refused["kind"], refused["reason"], refused["sender"]) == ("message.refused", "unknown", "worker-0")


async def test_a_trajectory_that_is_sent_again_is_counted_once(tmp_path: Path) -> None:
    """A sender repeats a message after a lost acknowledgement; the page and the summary count by these events."""
    async with running(make_spec(tmp_path)) as (buffer, sender):
        await buffer.open_group(make_plan(), b"")
        first, second = make_trajectory(), make_trajectory(attempt=1)
        outcomes = [await sender.send(each, SOON_S) for each in (first, first, second, second)]
    assert outcomes == ["appended", "duplicate", "superseded", "superseded_again"]
    stored = [event["outcome"] for event in events(tmp_path) if event["kind"] == "trajectory.stored"]
    assert stored == ["appended", "superseded"]


async def test_errors_reach_the_caller_and_survive_pickling(tmp_path: Path) -> None:
    async with running(make_spec(tmp_path, budget_bytes=100)) as (buffer, _):
        with pytest.raises(BudgetFullError, match=r"buffer\.budget_bytes"):
            await buffer.open_group(make_plan(0), b"")
        with pytest.raises(JournalError):
            await buffer.mark_trained(1, ["train-g000000-s00"], {})
    for error in (BudgetFullError("a"), DiskFullError("b"), JournalError("c"), UserError("d")):
        assert str(_moved(error)) == str(error)
    with pytest.raises(JournalError, match="belongs to run"):
        await TrajectoryBuffer(make_spec(tmp_path, run_id="another")).start()
