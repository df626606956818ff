"""If these fail, an acknowledged trajectory is lost, trained twice, or counted nowhere."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocol import codec
from protocol.errors import UserError
from protocol.files.filesystem import filesystem_type, require_local_filesystem
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import (
    AppendOutcome,
    BudgetFullError,
    DiskFullError,
    Journal,
    JournalError,
    JournalSettings,
    TrajectoryArrival,
)
from protocol.staleness import length_bucket
from protocol.trajectory import DropReason, GroupId
from tests.support.runs.trajectories import RUN, make_plan, make_trajectory

LARGEST = 1000


def arrival(group: int, sample: int, reward: float | None = None, attempt: int = 0, size: int = 4) -> TrajectoryArrival:
    reward = float(sample) if reward is None else reward
    trajectory = make_trajectory(group, sample, reward=reward, attempt=attempt, size=size)
    frames, sampled = codec.encode_trajectory(trajectory), trajectory.sampled_tokens
    digest, blob = codec.frames_digest(frames), codec.pack_frames(frames)
    return TrajectoryArrival(trajectory.request, reward, trajectory.passed, trajectory.status, digest, blob, sampled)


def open_journal(folder: Path, *, run_id: str = RUN, budget: int = 10**9, free: int = 10**12) -> Journal:
    journal_settings = JournalSettings(
        run_id=run_id, max_trajectory_bytes=LARGEST, budget_bytes=budget, dynamic_sampling=True
    )
    return Journal(folder / "buffer" / "journal.sqlite", journal_settings, lambda _: free)


def fill(journal: Journal, group: int, rewards: tuple[float, ...] = (0.0, 1.0, 0.0, 1.0)) -> None:
    journal.open_group(make_plan(group, len(rewards)), b"cursor")
    journal.append_batch([arrival(group, sample, reward) for sample, reward in enumerate(rewards)])


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = open_journal(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """Connections to SQLite that the test has opened."""
    opened, connect = list[sqlite3.Connection](), sqlite3.connect

    def noted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    return opened


def test_the_journal_syncs_every_commit_to_disk(connections: list[sqlite3.Connection], journal: Journal) -> None:
    (connection,), full = connections, 2
    assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    assert connection.execute("PRAGMA synchronous").fetchall() == [(full,)]


def test_the_folder_entries_of_a_new_journal_are_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the file's bytes would be durable but its folder entry would not."""
    synced: list[tuple[Path, set[str]]] = []

    def note(descriptor: int) -> None:
        folder = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((folder, {path.name for path in folder.iterdir()}))

    monkeypatch.setattr(os, "fsync", note)
    open_journal(tmp_path / "run").close()
    (buffer, files), (run, folders) = synced
    assert (buffer, run) == (tmp_path / "run" / "buffer", tmp_path / "run")
    assert "journal.sqlite" in files, "the file comes first"
    assert folders == {"buffer"}


def test_the_first_trajectory_of_a_sample_wins_and_every_arrival_is_counted(journal: Journal) -> None:
    journal.open_group(make_plan(0), b"")
    first, second, stranger = arrival(0, 0), arrival(0, 0, 9.0, attempt=1), arrival(7, 0)
    outcomes, closed = journal.append_batch([first, first, second, second, stranger])
    assert outcomes == ["appended", "duplicate", "superseded", "superseded_again", "unknown"]
    assert not closed
    accounting = journal.accounting()
    assert (accounting.acknowledged, accounting.in_buffer, accounting.superseded, accounting.unknown) == (2, 1, 1, 1)
    assert accounting.balanced


def test_appending_a_batch_equals_appending_its_trajectories_one_by_one(journal: Journal) -> None:
    groups = range(60)
    for group in groups:
        journal.open_group(make_plan(group), b"")
    wave = [arrival(group, sample) for sample in range(4) for group in reversed(groups)]
    again = [arrival(3, 1), arrival(4, 1, 9.0, attempt=1), arrival(99, 0)]
    outcomes, closed = journal.append_batch([*wave[:-1], *again])
    assert outcomes == [*["appended"] * 239, "duplicate", "superseded", "unknown"]
    assert [closing.group for closing in closed] == list(reversed(groups[1:]))
    assert all(closing.rewards == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0} for closing in closed)
    outcomes, closed = journal.append_batch([wave[-1], arrival(0, 3, 9.0, attempt=1)])
    assert (outcomes, [closing.group for closing in closed]) == (["appended", "superseded"], [0])
    accounting = journal.accounting()
    assert (accounting.acknowledged, accounting.in_buffer, accounting.superseded, accounting.unknown) == (
        242,
        240,
        2,
        1,
    )
    assert accounting.balanced


def test_a_group_closes_with_its_last_sample_and_reports_its_rewards(journal: Journal) -> None:
    journal.open_group(make_plan(5), b"")
    assert journal.append_batch([arrival(5, sample) for sample in (3, 1, 0)])[1] == []
    (closed,) = journal.append_batch([arrival(5, 2)])[1]
    assert (closed.seq, closed.outcome, closed.rewards) == (1, GroupOutcome.READY, {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0})
    assert closed.passed == {1, 2, 3}
    assert journal.list_closed_since(0) == [closed]
    assert journal.list_closed_since(1) == []


def test_passed_samples_are_recorded_separately_from_rewards(journal: Journal) -> None:
    """Otherwise a bonus, a penalty or a judge's score in the reward would change the reported pass rate."""
    journal.open_group(make_plan(5, 2), b"")
    failed, passed = arrival(5, 0, 2.0, size=2), arrival(5, 1, 0.8, size=2)
    (closed,) = journal.append_batch([replace(failed, passed=False), replace(passed, passed=True)])[1]
    assert (closed.rewards, closed.passed) == ({0: 2.0, 1: 0.8}, {1})


def test_groups_without_variance_or_members_are_dropped_once_with_their_reason(journal: Journal) -> None:
    fill(journal, 0, (1.0, 1.0, 1.0, 1.0))
    journal.open_group(make_plan(1), b"")
    journal.append_batch([arrival(1, 0), arrival(1, 1)])
    assert journal.abandon_sample(GroupId(1), 2, "engine") is None
    closed = journal.abandon_sample(GroupId(1), 3, "engine")
    assert closed is not None
    assert closed.outcome is GroupOutcome.TOO_FEW_MEMBERS
    assert journal.abandon_sample(GroupId(1), 3, "engine") is None
    accounting = journal.accounting()
    assert accounting.dropped == {DropReason.ZERO_VARIANCE: 4, DropReason.TOO_FEW_MEMBERS: 2}
    assert (accounting.in_buffer, accounting.abandoned, accounting.bytes) == (0, 2, 0)
    assert journal.lease_batch(1) is None
    assert journal.append_batch([arrival(1, 3)])[0] == [AppendOutcome.UNKNOWN]


def test_the_bytes_of_a_dropped_group_stay_until_the_next_append(tmp_path: Path) -> None:
    """Their export comes after the append that dropped them, and a crash in between may leave it to the next start."""
    journal = open_journal(tmp_path)
    fill(journal, 0, (1.0, 1.0, 1.0, 1.0))
    journal.close()
    journal = open_journal(tmp_path)
    assert [name for name, _ in journal.iterate_payloads()] == [f"train-g000000-s{sample:02d}" for sample in range(4)]
    fill(journal, 1)
    assert [name for name, _ in journal.iterate_payloads()] == [f"train-g000001-s{sample:02d}" for sample in range(4)]
    journal.close()


def test_a_group_with_a_missing_sample_trains_with_the_others(journal: Journal) -> None:
    journal.open_group(make_plan(0), b"")
    journal.append_batch([arrival(0, sample) for sample in (0, 1, 3)])
    journal.abandon_sample(GroupId(0), 2, "sandbox_lost")
    lease = journal.lease_batch(1)
    assert lease is not None
    assert (lease.groups[0].size, [row.sample for row in lease.groups[0].trajectories]) == (4, [0, 1, 3])


def test_a_cancelled_group_is_dropped_whole_and_counted(journal: Journal) -> None:
    journal.open_group(make_plan(0), b"")
    journal.append_batch([arrival(0, sample) for sample in (0, 1, 3)])
    closed = journal.cancel_group(GroupId(0), "cancelled")
    assert closed is not None
    assert (closed.outcome, closed.rewards) == (GroupOutcome.CANCELLED, {0: 0.0, 1: 1.0, 3: 3.0})
    assert journal.cancel_group(GroupId(0), "cancelled") is None
    assert journal.cancel_group(GroupId(7), "cancelled") is None
    assert journal.list_closed_since(0) == [closed]
    assert journal.lease_batch(1) is None
    assert journal.append_batch([arrival(0, 2)])[0] == [AppendOutcome.UNKNOWN]
    accounting = journal.accounting()
    assert (accounting.dropped, accounting.abandoned, accounting.bytes) == ({DropReason.CANCELLED: 3}, 1, 0)


def test_an_abandoned_sample_that_arrives_in_time_is_kept(journal: Journal) -> None:
    journal.open_group(make_plan(0), b"")
    journal.abandon_sample(GroupId(0), 2, "deadline")
    assert journal.append_batch([arrival(0, 2)])[0] == [AppendOutcome.APPENDED]
    assert journal.accounting().abandoned == 0


def test_a_lease_is_of_whole_groups_oldest_first_and_stays_the_same(journal: Journal) -> None:
    """The oldest tokens first: a group that waited for a slow member must not also wait behind younger ones."""
    for group in (0, 1, 2):
        journal.open_group(make_plan(group), b"")
    for group in (2, 1, 0):
        assert journal.lease_batch(3) is None
        journal.append_batch([arrival(group, sample) for sample in range(4)])
    lease = journal.lease_batch(2)
    assert lease is not None
    assert [each.group for each in lease.groups] == [0, 1]
    assert journal.lease_batch(2) == lease
    blobs = journal.read_payloads(lease)
    assert [codec.unpack_trajectory(blob).request.trajectory_id for blob in blobs] == lease.trajectory_ids


def test_marking_a_step_trained_is_idempotent_and_contradictions_are_refused(journal: Journal) -> None:
    fill(journal, 0)
    fill(journal, 1)
    lease = journal.lease_batch(1)
    assert lease is not None
    names = lease.trajectory_ids
    for _ in range(2):
        journal.mark_trained(1, names[1:], {names[0]: DropReason.ALL_STALE})
    with pytest.raises(JournalError):
        journal.mark_trained(2, names, {})
    with pytest.raises(JournalError):
        journal.mark_trained(1, names, {})
    with pytest.raises(JournalError, match="unknown"):
        journal.mark_trained(1, ["train-g000009-s00"], {})
    accounting = journal.accounting()
    assert (accounting.trained, accounting.dropped, accounting.in_buffer) == (3, {DropReason.ALL_STALE: 1}, 4)


def test_a_part_of_a_group_cannot_be_trained(journal: Journal) -> None:
    fill(journal, 0)
    lease = journal.lease_batch(1)
    assert lease is not None
    with pytest.raises(JournalError, match="part of group 0"):
        journal.mark_trained(1, lease.trajectory_ids[:3], {})
    assert journal.accounting().trained == 0


def test_resuming_from_a_checkpoint_leases_exactly_the_groups_it_does_not_cover(journal: Journal) -> None:
    leases = []
    for step in (1, 2, 3):
        fill(journal, step)
        leases.append(journal.lease_batch(1))
        journal.mark_trained(step, leases[-1].trajectory_ids, {})
    journal.commit_checkpoint(1)
    journal.commit_checkpoint(3)
    journal.rewind_to_step(1)
    assert journal.accounting().trained == 4
    assert journal.lease_batch(1) == leases[1]
    journal.mark_trained(2, leases[1].trajectory_ids, {})
    assert journal.lease_batch(1) == leases[2]


def test_groups_with_no_trained_trajectory_are_skipped_for_good_and_free_their_bytes(journal: Journal) -> None:
    fill(journal, 0)
    fill(journal, 1)
    lease = journal.lease_batch(1)
    assert lease is not None
    journal.mark_trained(1, [], dict.fromkeys(lease.trajectory_ids, DropReason.ALL_STALE))
    assert (journal.statistics().passed_over, journal.statistics().ready) == (1, 1)
    assert journal.statistics().uncommitted_bytes == 0
    journal.mark_trained(1, [], dict.fromkeys(lease.trajectory_ids, DropReason.ALL_STALE))
    second = journal.lease_batch(1)
    assert second is not None
    assert second != lease
    journal.mark_trained(1, second.trajectory_ids, {})
    assert journal.accounting().dropped == {DropReason.ALL_STALE: 4}
    journal.rewind_to_step(0)
    assert (journal.statistics().passed_over, journal.lease_batch(1)) == (1, second)
    with pytest.raises(JournalError, match="no longer stored"):
        journal.read_payloads(lease)


def test_payloads_go_only_when_the_oldest_kept_checkpoint_covers_them(journal: Journal) -> None:
    for step in (1, 2):
        fill(journal, step)
        lease = journal.lease_batch(1)
        journal.mark_trained(step, lease.trajectory_ids, {})
        journal.commit_checkpoint(step)
    with pytest.raises(JournalError, match="no checkpoint"):
        journal.compact_payloads(3)
    journal.compact_payloads(1)
    assert len(list(journal.iterate_payloads())) == 4
    journal.rewind_to_step(1)
    assert journal.read_payloads(journal.lease_batch(1))
    with pytest.raises(JournalError, match=r"cannot rewind to step 0: .*checkpoint\.keep_first, .*only be replayed"):
        journal.rewind_to_step(0)
    assert journal.append_batch([arrival(1, 0, 0.0)])[0] == [AppendOutcome.DUPLICATE]


def test_the_end_of_a_run_accounts_for_everything_and_a_resume_undoes_it(journal: Journal) -> None:
    fill(journal, 0)
    journal.mark_trained(1, journal.lease_batch(1).trajectory_ids, {})
    journal.commit_checkpoint(1)
    fill(journal, 1)
    journal.open_group(make_plan(2), b"")
    journal.append_batch([arrival(2, 0)])
    journal.end_run()
    accounting = journal.accounting()
    assert (accounting.in_buffer, accounting.dropped) == (0, {DropReason.RUN_ENDED: 5})
    assert journal.list_open_groups() == []
    assert journal.append_batch([arrival(2, 1)])[0] == [AppendOutcome.UNKNOWN]
    assert journal.abandon_sample(GroupId(2), 1, "shutdown") is None
    with pytest.raises(JournalError, match="rewind"):
        journal.open_group(make_plan(3), b"")
    journal.rewind_to_step(1)
    assert journal.accounting().in_buffer == 5
    assert journal.list_open_groups()[0].missing == (1, 2, 3)
    assert journal.lease_batch(1).groups[0].group == 1


def test_open_groups_and_cursor_survive_a_restart(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    plan = GroupPlan(GroupId(4), "task-4", (2**40, 8, 2))
    assert journal.open_group(plan, b"after 4")
    assert not journal.open_group(plan, b"after 4")
    journal.append_batch([arrival(4, 1, size=3)])
    journal.close()
    journal = open_journal(tmp_path)
    (group,) = journal.list_open_groups()
    assert (group.plan, group.missing) == (plan, (0, 2))
    assert journal.read_sampler_state() == b"after 4"
    with pytest.raises(JournalError, match="another plan"):
        journal.open_group(make_plan(4), b"")
    journal.close()


def test_a_journal_has_one_writer_and_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(tmp_path)
    monkeypatch.setattr("protocol.journal.store.LOCK_WAIT_S", 0.05)
    with pytest.raises(JournalError, match="another process has it open"):
        open_journal(tmp_path)
    journal.close()
    with pytest.raises(JournalError, match="belongs to run"):
        open_journal(tmp_path, run_id="another")


def test_room_in_the_budget_is_reserved_for_whole_groups_and_freed_by_a_checkpoint(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, budget=2 * 4 * LARGEST)
    journal.open_group(make_plan(0), b"0")
    journal.open_group(make_plan(1), b"1")
    with pytest.raises(BudgetFullError, match="group 2"):
        journal.open_group(make_plan(2), b"2")
    assert journal.read_sampler_state() == b"1"
    journal.append_batch([arrival(0, sample) for sample in range(4)])
    assert journal.statistics().reserved_bytes == 4 * LARGEST
    journal.mark_trained(1, journal.lease_batch(1).trajectory_ids, {})
    with pytest.raises(BudgetFullError):
        journal.open_group(make_plan(2), b"2")
    assert journal.statistics().uncommitted_bytes > 0
    journal.commit_checkpoint(1)
    journal.open_group(make_plan(2), b"2")
    journal.close()


def test_an_abandoned_sample_keeps_its_reserved_bytes_until_its_group_closes(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, budget=4 * LARGEST)
    journal.open_group(make_plan(0), b"")
    journal.abandon_sample(GroupId(0), 2, "deadline")
    assert journal.statistics().reserved_bytes == 4 * LARGEST
    with pytest.raises(BudgetFullError):
        journal.open_group(make_plan(1, 2), b"")
    journal.append_batch([arrival(0, 2)])
    assert journal.statistics().reserved_bytes == 3 * LARGEST
    journal.abandon_sample(GroupId(0), 3, "deadline")
    journal.append_batch([arrival(0, sample) for sample in (0, 1)])
    assert journal.statistics().reserved_bytes == 0, "nobody waits for what was given up once its group has closed"
    journal.close()


def test_dropped_tokens_by_length_are_counted_over_the_whole_run(tmp_path: Path) -> None:
    """Whoever else was killed, and also of what the end of the run left over."""
    journal = open_journal(tmp_path)
    sampled = arrival(0, 0).sampled
    bucket = length_bucket(sampled)
    fill(journal, 0, (1.0, 1.0, 1.0, 1.0))
    journal.open_group(make_plan(1), b"")
    journal.append_batch([arrival(1, 0)])
    journal.close()
    journal = open_journal(tmp_path)
    journal.append_batch([arrival(1, sample) for sample in (1, 2, 3)])
    lease = journal.lease_batch(1)
    assert lease is not None
    first, *rest = lease.trajectory_ids
    journal.mark_trained(1, rest, {first: DropReason.ALL_STALE})
    journal.open_group(make_plan(2), b"")
    journal.append_batch([arrival(2, 0), arrival(2, 1)])
    journal.end_run()
    costs = {"zero_variance": 4 * sampled, "all_stale": sampled, "run_ended": 2 * sampled}
    assert journal.dropped_tokens() == {reason: {bucket: tokens} for reason, tokens in costs.items()}
    assert journal.accounting().dropped_tokens == journal.dropped_tokens()
    journal.rewind_to_step(0)
    assert journal.dropped_tokens() == {"zero_variance": {bucket: 4 * sampled}}
    journal.close()


def test_a_group_that_may_not_fit_on_disk_is_refused_with_advice(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, free=64 * 2**20 + 4 * LARGEST)
    with pytest.raises(DiskFullError, match=r"MiB free.*du -xh") as caught:
        journal.open_group(make_plan(0), b"")
    assert str(tmp_path) in str(caught.value)
    assert journal.list_open_groups() == []
    journal.close()


def test_an_append_to_a_full_disk_acknowledges_nothing(connections: list[sqlite3.Connection], journal: Journal) -> None:
    journal.open_group(make_plan(0), b"")
    (connection,) = connections
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    large = arrival(0, 0)
    large = replace(large, blob=bytes(1 << 20))
    with pytest.raises(DiskFullError, match="nothing was acknowledged"):
        journal.append_batch([large])
    assert journal.accounting().acknowledged == 0
    connection.execute("PRAGMA max_page_count = 1000000")
    assert journal.append_batch([arrival(0, 0)])[0] == [AppendOutcome.APPENDED]


def test_a_network_file_system_is_refused_with_the_fix(tmp_path: Path) -> None:
    mounts = "\n".join(
        (
            "1 0 8:1 / / rw - ext4 /dev/vda rw",
            "2 1 0:9 / /home rw shared:1 - nfs4 host:/home rw",
            r"3 2 0:10 / /home/a\040b rw - ext4 /dev/vdb rw",
        )
    )
    assert filesystem_type(PurePath("/home/me/runs"), mounts) == "nfs4"
    assert filesystem_type(PurePath("/home/a b/runs"), mounts) == "ext4"
    assert filesystem_type(PurePath("/homes/x"), mounts) == "ext4"
    for kind in ("fuse.sshfs", "fuse.ceph-fuse", "fuse.mfs", "gfs2", "wekafs"):
        with pytest.raises(UserError, match="local disk"):
            require_local_filesystem(tmp_path, f"1 0 0:1 / {tmp_path.resolve()} rw - {kind} x rw")
    with pytest.raises(UserError, match=r"fuse\.mountpoint-s3"):
        require_local_filesystem(tmp_path, f"1 0 0:1 / {tmp_path.resolve()} rw - fuse mountpoint-s3 rw")
    require_local_filesystem(tmp_path, "1 0 0:1 / / rw - fuse.fuse-overlayfs x rw")
    require_local_filesystem(tmp_path, "1 0 0:1 / / rw - fuse /dev/fuse rw")


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from unit.protocol.journal.test_journal import arrival, open_journal
from tests.support.runs.trajectories import make_plan
journal = open_journal(Path({folder!r}))
for group in range(10_000):
    journal.open_group(make_plan(group), b"%d" % group)
    for sample in range(4):
        journal.append_batch([arrival(group, sample)])
        print(group, sample, flush=True)
"""


def test_sigkill_during_appends_loses_no_acknowledged_trajectory(tmp_path: Path) -> None:
    script = WRITER.format(path=[path for path in sys.path if path], folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [tuple(map(int, writer.stdout.readline().split())) for _ in range(41)]
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += [tuple(map(int, line.split())) for line in writer.stdout if line.endswith("\n")]
    journal = open_journal(tmp_path)
    accounting = journal.accounting()
    assert len(acknowledged) <= accounting.acknowledged <= len(acknowledged) + 1
    assert journal.append_batch([arrival(*each) for each in acknowledged])[0] == [AppendOutcome.DUPLICATE] * len(
        acknowledged
    )
    assert accounting.in_buffer == accounting.acknowledged
    assert int(journal.read_sampler_state() or b"-1") >= acknowledged[-1][0]
    journal.close()


class JournalMachine(RuleBasedStateMachine):
    """Any order of calls: the accounting balances, and each trajectory is used once per lineage."""

    @initialize(target=None)
    def open(self) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.journal = open_journal(Path(self.folder.name))
        self.groups = self.step = 0
        self.kept = [0]
        """Steps of the checkpoints that are kept."""
        self.used: dict[int, set[str]] = {}

    @rule()
    def open_group(self) -> None:
        self.journal.open_group(make_plan(self.groups, 3), b"%d" % self.groups)
        self.groups += 1

    @rule(
        group=st.integers(0, 5), sample=st.integers(0, 2), reward=st.sampled_from([0.0, 1.0]), attempt=st.integers(0, 1)
    )
    def append(self, group: int, sample: int, reward: float, attempt: int) -> None:
        self.journal.append_batch([arrival(group, sample, reward, attempt)])

    @rule(group=st.integers(0, 5), sample=st.integers(0, 2))
    def abandon(self, group: int, sample: int) -> None:
        self.journal.abandon_sample(GroupId(group), sample, "engine")

    @rule(groups=st.integers(1, 2), drop=st.booleans())
    def train(self, groups: int, drop: bool) -> None:
        if lease := self.journal.lease_batch(groups):
            assert len(self.journal.read_payloads(lease)) == len(lease.trajectory_ids)
            self.step += 1
            first, *rest = lease.trajectory_ids
            dropped = {first: DropReason.ALL_STALE} if drop else {}
            self.journal.mark_trained(self.step, rest if drop else [first, *rest], dropped)
            assert not set(lease.trajectory_ids) & set().union(*self.used.values())
            self.used[self.step] = set(lease.trajectory_ids)

    @precondition(lambda self: self.step > self.kept[-1])
    @rule()
    def checkpoint(self) -> None:
        self.journal.commit_checkpoint(self.step)
        self.kept.append(self.step)

    @rule(keep=st.integers(1, 3))
    def compact(self, keep: int) -> None:
        del self.kept[:-keep]
        self.journal.compact_payloads(self.kept[0])

    @precondition(lambda self: self.kept[0] > 0)
    @rule()
    def resume_from_a_checkpoint_that_is_gone(self) -> None:
        with pytest.raises(JournalError, match="cannot rewind"):
            self.journal.rewind_to_step(self.kept[0] - 1)

    @rule(damaged=st.integers(0, 2))
    def resume(self, damaged: int) -> None:
        """From the newest of those kept, or from one before it."""
        self.journal.close()
        self.journal = open_journal(Path(self.folder.name))
        del self.kept[max(1, len(self.kept) - damaged) :]
        self.step = self.kept[-1]
        self.journal.rewind_to_step(self.step)
        self.used = {step: names for step, names in self.used.items() if step <= self.step}

    @invariant()
    def balanced(self) -> None:
        accounting = self.journal.accounting()
        dropped = accounting.dropped.get(DropReason.ALL_STALE, 0)
        assert accounting.trained + dropped == sum(map(len, self.used.values()))

    def teardown(self) -> None:
        self.journal.close()
        self.folder.cleanup()


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
