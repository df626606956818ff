"""If these fail, a crash while a checkpoint is written loses the run, or a resume trains something twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.checkpoints import CheckpointManifest, CheckpointStore, LedgerLine
from protocol.errors import UserError


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


def test_the_first_stays_if_it_is_to_stay(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1, keep_first=True)
    for step in (0, 4, 8):
        save(store, step)
        oldest = store.prune()
    assert oldest == 8
    assert [each.manifest.step for each in store.all()] == [0, 8]


def test_a_damaged_manifest_says_what_to_do(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    save(store, 4)
    (tmp_path / "checkpoints" / "step-000004" / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="move it away"):
        store.latest()
