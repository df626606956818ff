"""If these fail, a person who mistypes a run's name gets a new empty folder and wrong advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.replay import _main
from protocol.cli.exits import EXIT_USER, main_guard


def test_a_reader_creates_nothing_and_suggests_the_run_that_was_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo-1").mkdir()
    (tmp_path / "demo-1" / "config.json").write_text("{}")
    assert main_guard(lambda: _main([str(tmp_path / "demo-l")])) == EXIT_USER
    said = capsys.readouterr().err
    assert "no such run" in said
    assert "did you mean 'demo-1'?" in said
    assert not (tmp_path / "demo-l").exists()


def test_a_run_without_checkpoints_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert main_guard(lambda: _main([str(tmp_path)])) == EXIT_USER
    assert "holds no checkpoint, and a replay needs two" in capsys.readouterr().err
    assert not (tmp_path / "checkpoints").exists()
