"""If these fail, a person who mistypes a run's name gets a new empty folder and wrong advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.checkpoints.store import LedgerLine
from launch.replay.__main__ import COMMAND
from launch.replay.training_replay import read_step_payload
from protocol.cli.exit_codes import EXIT_USER, main_guard
from protocol.errors import UserError
from protocol.run_directory.trajectory_export import TRAJECTORIES_FOLDER, ExportIndexEntry
from protocol.weights import WeightVersion


def test_a_reader_creates_nothing_and_suggests_the_run_that_was_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo-1").mkdir()
    (tmp_path / "demo-1" / "config.json").write_text("{}")
    assert main_guard(lambda: COMMAND.call([str(tmp_path / "demo-l")])) == EXIT_USER
    stderr = capsys.readouterr().err
    there = f"no run 'demo-l' in {tmp_path}: `longshore runs list {tmp_path}` lists them; did you mean 'demo-1'?"
    assert there in stderr
    assert not (tmp_path / "demo-l").exists()


def test_a_run_without_checkpoints_is_refused_and_left_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert main_guard(lambda: COMMAND.call([str(tmp_path)])) == EXIT_USER
    assert "has no checkpoint and a replay needs two" in capsys.readouterr().err
    assert not (tmp_path / "checkpoints").exists()


def test_a_step_gets_its_trajectories_in_the_order_of_its_lease(tmp_path: Path) -> None:
    """By group and sample as numbers: as words, sample 100 comes before sample 11."""
    exported, names = dict[str, ExportIndexEntry](), [f"train-g000001-s{sample:02d}" for sample in (11, 100, 9)]
    (tmp_path / TRAJECTORIES_FOLDER).mkdir()
    blobs = "trajectories-000001.bin"
    (tmp_path / TRAJECTORIES_FOLDER / blobs).write_bytes(b"abc")
    for offset, (name, sample) in enumerate(zip(names, (11, 100, 9), strict=True)):
        exported[name] = ExportIndexEntry(name, 1, sample, "task", blobs, offset, 1, "completed", 1.0)
    line = LedgerLine(1, WeightVersion(0), tuple(names[:2]), {names[2]: "all_stale"})
    assert read_step_payload(tmp_path, exported, line) == [b"c", b"a", b"b"]
    with pytest.raises(UserError, match=r"lacks 1 trajectories of step 1, among them train-g000001-s09"):
        read_step_payload(tmp_path, {name: exported[name] for name in names[:2]}, line)
