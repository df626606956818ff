"""If these fail, a crash while a checkpoint is written loses the run, or a resume trains something twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from launch.checkpoints import CheckpointManifest, CheckpointStore, LedgerLine, require_no_older
from protocol import codec
from protocol.errors import UserError
from protocol.journal import Journal, JournalSettings
from protocol.journal.repair import FILE, recover
from protocol.stream import Received
from tests.support.trajectories import RUN, make_plan, make_trajectory


def manifest(step: int) -> CheckpointManifest:
    return CheckpointManifest(step, 10 + step, 1, "{}", {"acked": 3}, [(10 + step, step, -1)])


def save(store: CheckpointStore, step: int) -> None:
    before = store.latest()
    (store.begin(step) / "shard").write_bytes(b"weights")
    steps = range(before.manifest.step + 1 if before else 1, step + 1)
    store.finish(manifest(step), [LedgerLine(each, 10, (f"t{each}",), {"x": "all_stale"}) for each in steps])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    save(store, 4)
    found = store.latest()
    assert found is not None
    assert found.manifest == manifest(4)
    assert (found.learner / "shard").read_bytes() == b"weights"
    assert [line.trained for line in found.ledger()] == [("t1",), ("t2",), ("t3",), ("t4",)]
    assert found.lineage.entries[14].step == 4


def test_a_ledger_has_every_step_of_the_run_whatever_was_pruned(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    for step in (0, 2, 5):
        save(store, step)
        store.prune()
    (found,) = store.all()
    assert [line.step for line in found.ledger()] == [1, 2, 3, 4, 5]


def test_an_unfinished_checkpoint_is_none(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    save(store, 4)
    (store.begin(8) / "shard").write_bytes(b"half")
    latest = CheckpointStore(tmp_path, keep=2).latest()
    assert latest is not None
    assert latest.manifest.step == 4
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-000004", "step-000008.unfinished"}
    save(store, 6)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-000004", "step-000006"}


def test_the_newest_stay_and_the_oldest_step_is_told(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in (0, 4, 8):
        save(store, step)
    assert store.prune() == 4
    assert [each.manifest.step for each in store.all()] == [4, 8]


def test_a_driver_that_dies_while_it_removes_a_checkpoint_leaves_nothing_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    for step in (0, 4):
        save(store, step)

    def dies(folder: Path) -> None:
        (folder / "manifest.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("launch.checkpoints.shutil.rmtree", dies)
        with pytest.raises(KeyboardInterrupt):
            store.prune()
    resumed = CheckpointStore(tmp_path, keep=1)
    save(resumed, 8)
    resumed.prune()
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-000008"}


def test_the_first_stays_if_it_is_to_stay(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1, keep_first=True)
    for step in (0, 4, 8):
        save(store, step)
        oldest = store.prune()
    assert oldest == 8
    assert [each.manifest.step for each in store.all()] == [0, 8]


class Run:
    """A journal and the books that a checkpoint had of it: groups of two samples, one group a step."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.path = run_dir, run_dir / FILE
        self.journal = self.open()

    def open(self) -> Journal:
        return Journal(self.path, JournalSettings(run_id=RUN, max_trajectory_bytes=1 << 20, budget_bytes=1 << 30))

    def arrive(self, *groups: int) -> None:
        for group in groups:
            self.journal.open_group(make_plan(group, 2), b"")
            for sample in range(2):
                frames = codec.encode(make_trajectory(group, sample, size=2, reward=float(sample)))
                received = Received(codec.inspect(frames, max_bytes=1 << 20), frames, "worker")
                self.journal.append([received.arrival()])

    def train(self, step: int) -> None:
        lease = self.journal.lease(1)
        assert lease is not None
        self.journal.mark_trained(step, lease.trajectories, {})

    def checkpoint(self, step: int) -> CheckpointManifest:
        books = self.journal.accounting().as_dict()
        self.journal.commit(step)
        return replace(manifest(step), accounting=books)

    def copy(self, *suffixes: str) -> dict[Path, bytes]:
        """The file as it lies on the disk, as a SIGKILL leaves it."""
        return {path: path.read_bytes() for path in (Path(f"{self.path}{suffix}") for suffix in ("", *suffixes))}

    def put_back(self, files: dict[Path, bytes]) -> None:
        self.journal.close()
        for path, data in files.items():
            path.write_bytes(data)
        self.journal = self.open()

    def resume(self, found: CheckpointManifest) -> None:
        self.journal.rewind(found.step)
        require_no_older(self.path, self.journal.accounting(), found)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.journal.close()


def test_a_journal_goes_on_with_its_checkpoint_whatever_came_after_it(run: Run) -> None:
    run.arrive(0, 1, 2)
    run.train(1)
    first = run.checkpoint(1)
    run.train(2)
    second = run.checkpoint(2)
    run.arrive(3)
    run.train(3)
    run.put_back(run.copy("-wal"))
    run.resume(second)
    run.resume(first)
    run.train(2)
    run.journal.commit(2)
    run.journal.compact(2)
    run.resume(second)


def test_a_journal_without_its_log_is_refused(run: Run) -> None:
    run.arrive(0, 1)
    run.train(1)
    found, killed = run.checkpoint(1), run.copy()
    run.put_back(killed)
    with pytest.raises(UserError, match=r"knows of 0 acknowledged and 0 trained .* were 4 and 2.*journal\.sqlite-wal"):
        run.resume(found)


def test_a_journal_from_before_the_checkpoints_last_step_is_refused_though_nothing_has_arrived_since(run: Run) -> None:
    run.arrive(0, 1)
    run.train(1)
    older = run.copy("-wal")
    run.train(2)
    found = run.checkpoint(2)
    run.put_back(older)
    with pytest.raises(UserError, match=r"4 acknowledged and 2 trained .* were 4 and 4"):
        run.resume(found)


def test_what_a_recovery_has_lost_a_resume_does_not_ask_for(run: Run) -> None:
    run.arrive(0, 1)
    run.train(1)
    found = run.checkpoint(1)
    run.journal.close()
    with closing(sqlite3.connect(run.path)) as database, database:
        database.execute("DELETE FROM payloads WHERE trajectory = 'train-g000001-s00'")
    assert recover(run.run_dir).lost == ["train-g000001-s00"]
    run.journal = run.open()
    run.resume(found)
    assert run.journal.accounting().acked == 3


def test_a_damaged_manifest_says_what_to_do(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    save(store, 4)
    (tmp_path / "checkpoints" / "step-000004" / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"move it away .*checkpoint\.keep_first can only be replayed"):
        store.latest()
