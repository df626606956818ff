"""If these fail, a crash while a checkpoint is written loses the run, or a resume trains something twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.checkpoints.retention import best_step, select_steps_to_keep
from launch.checkpoints.store import (
    CheckpointManifest,
    CheckpointStore,
    LedgerLine,
    require_intact,
    require_journal_covers,
    shard_digests,
)
from launch.settings.checkpoint import RetentionSettings
from protocol import codec
from protocol.errors import UserError
from protocol.files.digests import digest_files
from protocol.journal import Journal, JournalSettings
from protocol.journal.repair import JOURNAL_FILE, recover_journal
from protocol.stream import ReceivedTrajectory
from tests.support.runs.trajectories import RUN, make_plan, make_trajectory


def manifest(step: int) -> CheckpointManifest:
    return CheckpointManifest(step, 10 + step, 1, {"acknowledged": 3}, [(10 + step, step, -1)], {})


def save(store: CheckpointStore, step: int) -> None:
    before = store.list_checkpoints()
    shards = store.begin(step)
    (shards / "shard").write_bytes(b"weights")
    steps = range(before[-1].manifest.step + 1 if before else 1, step + 1)
    store.finish(
        replace(manifest(step), files=shard_digests(digest_files(shards, ["shard"]))),
        [LedgerLine(each, 10, (f"t{each}",), {"x": "all_stale"}) for each in steps],
    )


def newest(store: CheckpointStore) -> tuple[int | None, list[tuple[str, str]]]:
    """Its step, and what was passed over for it."""
    reports: list[tuple[str, str]] = []
    store.on_torn = lambda path, why: reports.append((path.name, why))
    found = store.newest_intact()
    return None if found is None else found.manifest.step, reports


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def test_a_checkpoint_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=2))
    save(store, 4)
    (found,) = store.list_checkpoints()
    assert replace(found.manifest, files={}) == manifest(4)
    assert found.manifest.files.keys() == {"learner/shard", "ledger.jsonl"}
    assert (found.learner / "shard").read_bytes() == b"weights"
    assert [line.trained for line in found.ledger()] == [("t1",), ("t2",), ("t3",), ("t4",)]
    assert found.lineage.entries[14].step == 4


def test_a_ledger_has_every_step_of_the_run_even_after_pruning(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=1))
    for step in (0, 2, 5):
        save(store, step)
        store.prune()
    (found,) = store.list_checkpoints()
    assert [line.step for line in found.ledger()] == [1, 2, 3, 4, 5]


def test_an_unfinished_checkpoint_does_not_count_and_is_removed_with_the_next_one(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=2))
    save(store, 4)
    (store.begin(8) / "shard").write_bytes(b"half")
    assert newest(CheckpointStore(tmp_path, RetentionSettings(keep=2))) == (4, [])
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-000004", "step-000008.unfinished"}
    save(store, 6)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-000004", "step-000006"}


def test_pruning_keeps_the_newest_checkpoints_and_returns_the_oldest_kept_step(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=2))
    for step in (0, 4, 8):
        save(store, step)
    assert store.prune() == 4
    assert [each.manifest.step for each in store.list_checkpoints()] == [4, 8]


def test_a_checkpoint_left_half_removed_by_a_dead_driver_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=1))
    for step in (0, 4):
        save(store, step)

    def dies(folder: Path) -> None:
        (folder / "manifest.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("launch.checkpoints.store.shutil.rmtree", dies)
        with pytest.raises(KeyboardInterrupt):
            store.prune()
    resumed = CheckpointStore(tmp_path, RetentionSettings(keep=1))
    save(resumed, 8)
    resumed.prune()
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-000008"}


def test_the_first_checkpoint_stays_if_keep_first_is_set(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=1, keep_first=True))
    for step in (0, 4, 8):
        save(store, step)
        oldest = store.prune()
    assert oldest == 8
    assert [each.manifest.step for each in store.list_checkpoints()] == [0, 8]


class JournalRun:
    """A journal and the accounting that a checkpoint had of it: groups of two samples, one group a step."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.path = run_dir, run_dir / JOURNAL_FILE
        self.journal = self.open()

    def open(self) -> Journal:
        return Journal(
            self.path,
            JournalSettings(run_id=RUN, max_trajectory_bytes=1 << 20, budget_bytes=1 << 30, dynamic_sampling=True),
        )

    def arrive(self, *groups: int) -> None:
        for group in groups:
            self.journal.open_group(make_plan(group, 2), b"")
            for sample in range(2):
                frames = codec.encode_trajectory(make_trajectory(group, sample, size=2, reward=float(sample)))
                received = ReceivedTrajectory(codec.inspect_frames(frames, max_bytes=1 << 20), frames, "worker")
                self.journal.append_batch([received.to_arrival()])

    def train(self, step: int) -> None:
        lease = self.journal.lease_batch(1)
        assert lease is not None
        self.journal.mark_trained(step, lease.trajectory_ids, {})

    def checkpoint(self, step: int) -> CheckpointManifest:
        accounting = self.journal.accounting().as_dict()
        self.journal.commit_checkpoint(step)
        return replace(manifest(step), accounting=accounting)

    def copy(self, *suffixes: str) -> dict[Path, bytes]:
        """The file as it lies on the disk, as a SIGKILL leaves it."""
        return {path: path.read_bytes() for path in (Path(f"{self.path}{suffix}") for suffix in ("", *suffixes))}

    def put_back(self, files: dict[Path, bytes]) -> None:
        self.journal.close()
        for path, data in files.items():
            path.write_bytes(data)
        self.journal = self.open()

    def resume(self, found: CheckpointManifest) -> None:
        self.journal.rewind_to_step(found.step)
        require_journal_covers(self.path, self.journal.accounting(), found)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[JournalRun]:
    made = JournalRun(tmp_path)
    yield made
    made.journal.close()


def test_a_journal_with_entries_after_a_checkpoint_still_resumes_from_it(run: JournalRun) -> None:
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
    run.journal.commit_checkpoint(2)
    run.journal.compact_payloads(2)
    run.resume(second)


def test_a_journal_without_its_log_is_refused(run: JournalRun) -> None:
    run.arrive(0, 1)
    run.train(1)
    found, killed = run.checkpoint(1), run.copy()
    run.put_back(killed)
    with pytest.raises(UserError, match=r"knows of 0 acknowledged and 0 trained .* were 4 and 2.*journal\.sqlite-wal"):
        run.resume(found)


def test_a_journal_that_lacks_only_the_last_step_of_its_checkpoint_is_refused(
    run: JournalRun,
) -> None:
    run.arrive(0, 1)
    run.train(1)
    older = run.copy("-wal")
    run.train(2)
    found = run.checkpoint(2)
    run.put_back(older)
    with pytest.raises(UserError, match=r"4 acknowledged and 2 trained .* were 4 and 4"):
        run.resume(found)


def test_a_resume_does_not_expect_trajectories_that_a_recovery_lost(run: JournalRun) -> None:
    run.arrive(0, 1)
    run.train(1)
    found = run.checkpoint(1)
    run.journal.close()
    with closing(sqlite3.connect(run.path)) as database, database:
        database.execute("DELETE FROM payloads WHERE trajectory = 'train-g000001-s00'")
    assert recover_journal(run.run_dir).lost == ["train-g000001-s00"]
    run.journal = run.open()
    run.resume(found)
    assert run.journal.accounting().acknowledged == 3


@pytest.mark.parametrize("harm", [truncate, flip_a_bit, Path.unlink])
@pytest.mark.parametrize("file", ["learner/shard", "ledger.jsonl", "manifest.json"])
def test_a_damaged_checkpoint_is_set_aside_for_the_one_before(
    tmp_path: Path, harm: Callable[[Path], None], file: str
) -> None:
    """Otherwise a run would continue from weights, accounting or a lineage that never existed."""
    store = CheckpointStore(tmp_path, RetentionSettings(keep=3))
    for step in (0, 4, 8):
        save(store, step)
    harm(tmp_path / "checkpoints" / "step-000008" / file)
    step, ((name, why),) = newest(store)
    assert (step, name) == (4, "step-000008.torn")
    assert Path(file).name in why
    assert [each.manifest.step for each in store.list_checkpoints()] == [0, 4]
    save(store, 8)
    assert newest(store) == (8, []), "what a torn one has left is in nobody's way"


def test_if_every_checkpoint_is_damaged_all_stay_and_the_error_names_the_damage(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=2))
    for step in (0, 4):
        save(store, step)
        flip_a_bit(tmp_path / "checkpoints" / f"step-{step:06d}" / "learner" / "shard")
    with pytest.raises(UserError, match=r"none of the 2 checkpoints .* step-000004, learner/shard is not .*--resume"):
        newest(store)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-000000", "step-000004"}
    with pytest.raises(UserError, match=r"step-000000 is damaged: learner/shard"):
        require_intact(store.list_checkpoints()[0])


def test_a_run_without_checkpoints_has_none(tmp_path: Path) -> None:
    assert newest(CheckpointStore(tmp_path, RetentionSettings(keep=2))) == (None, [])


@pytest.mark.parametrize("missing", [True, False])
def test_a_checkpoint_with_other_files_than_the_learner_wrote_is_refused(tmp_path: Path, *, missing: bool) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=2))
    shards = store.begin(4)
    (shards / "shard").write_bytes(b"weights")
    files = shard_digests(digest_files(shards, ["shard"]))
    if missing:
        (shards / "shard").unlink()
    else:
        (shards / "other").write_bytes(b"")
    with pytest.raises(OSError, match="does not hold the files that the learner wrote"):
        store.finish(replace(manifest(4), files=files), [])
    assert store.list_checkpoints() == []


def test_the_best_checkpoint_stays_and_scores_of_rolled_back_weights_do_not_count(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=1, keep_best=True))
    save(store, 0)
    store.record_score(0, 0.4)
    save(store, 4)
    store.record_score(4, 0.9)
    save(store, 8)
    store.prune()
    assert [each.manifest.step for each in store.list_checkpoints()] == [4, 8]
    store.drop_scores_after(0)
    assert store.scores() == {0: 0.4}
    save(store, 4)
    save(store, 12)
    store.prune()
    assert [each.manifest.step for each in store.list_checkpoints()] == [12]


def test_a_score_that_came_before_its_checkpoint_was_written_is_kept(tmp_path: Path) -> None:
    """An evaluation waits for no checkpoint."""
    store = CheckpointStore(tmp_path, RetentionSettings(keep=1, keep_best=True))
    store.record_score(4, 0.9)
    for step in (0, 4, 8):
        save(store, step)
    store.prune()
    assert [each.manifest.step for each in store.list_checkpoints()] == [4, 8]
    best = store.best_scored()
    assert best is not None
    assert (best[0].manifest.step, best[1]) == (4, 0.9)


def test_a_checkpoint_stays_until_its_pending_score_is_known(tmp_path: Path) -> None:
    """Without this, the best checkpoint is removed before its score is known."""
    store = CheckpointStore(tmp_path, RetentionSettings(keep=1, keep_best=True))
    store.record_score(0, 0.4)
    for step in (0, 4):
        save(store, step)
    store.expect_score(4)
    for step in (8, 12):
        save(store, step)
        store.prune()
    assert [each.manifest.step for each in store.list_checkpoints()] == [0, 4, 12]
    store.record_score(4, 0.3)
    store.expect_score(None)
    store.prune()
    assert [each.manifest.step for each in store.list_checkpoints()] == [0, 12]


def test_without_a_checkpoint_of_an_evaluated_step_there_is_no_best(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=1, keep_best=True))
    store.record_score(4, 0.9)
    save(store, 8)
    assert store.best_scored() is None
    assert store.prune() == 8


STEPS = st.lists(st.integers(0, 30), unique=True, min_size=1)
SCORES = st.dictionaries(st.integers(0, 30), st.sampled_from([0.0, 0.25, 0.5, 1.0]))


@given(steps=STEPS, scores=SCORES, awaited=st.sets(st.integers(0, 30), max_size=1), keep=st.integers(1, 4))
def test_no_discarded_step_has_a_better_score_than_the_best_kept_one(
    steps: list[int], scores: dict[int, float], awaited: set[int], keep: int
) -> None:
    kept = select_steps_to_keep(RetentionSettings(keep=keep, keep_best=True), steps, scores, awaited)
    assert kept <= set(steps)
    assert set(sorted(steps)[-keep:]) <= kept
    assert awaited & set(steps) <= kept
    best = best_step(steps, scores)
    scored = [(scores[step], step) for step in steps if step in scores]
    assert (best is None) == (not scored)
    if best is not None:
        assert best in kept
        assert (scores[best], best) == max(scored), "of equals the later"
    assert len(kept) <= keep + 2


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (RetentionSettings(keep=1), {20}),
        (RetentionSettings(keep=2, keep_first=True), {0, 16, 20}),
        (RetentionSettings(keep=1, keep_every_steps=8), {8, 16, 20}),
        (RetentionSettings(keep=1, keep_best=True), {12, 20}),
        (RetentionSettings(keep=9), {0, 4, 8, 12, 16, 20}),
    ],
)
def test_each_retention_setting_keeps_its_steps(retention: RetentionSettings, kept: set[int]) -> None:
    assert select_steps_to_keep(retention, [0, 4, 8, 12, 16, 20], {0: 0.5, 4: 0.7, 12: 0.7, 24: 1.0}) == kept


def test_the_journal_keeps_what_the_oldest_resumable_checkpoint_needs(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, RetentionSettings(keep=2, keep_first=True, keep_every_steps=4))
    for step in (0, 4, 8, 12):
        save(store, step)
    assert store.prune() == 8
