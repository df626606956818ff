"""If these fail, a mistyped run has another error in every command, or none that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.control.ctl import COMMAND as CTL
from launch.exporters.__main__ import COMMAND as EXPORTERS
from launch.monitor.__main__ import COMMAND as MONITOR
from launch.replay.__main__ import COMMAND as REPLAY
from launch.report import COMMAND as REPORT
from launch.runs.__main__ import COMMAND as RUNS
from launch.trace.__main__ import COMMAND as TRACE
from protocol.cli.command import Command
from protocol.journal.__main__ import COMMAND as JOURNAL
from protocol.run_directory.layout import NoSuchRunError


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "demo-1"
    run.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    return run


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (CTL, "demo-l status"),
        (EXPORTERS, "demo-l --to tensorboard"),
        (JOURNAL, "check demo-l"),
        (JOURNAL, "recover demo-l"),
        (MONITOR, "demo-l --json"),
        (REPLAY, "demo-l"),
        (REPORT, "demo-l"),
        (RUNS, "prune demo-l"),
        (TRACE, "demo-l"),
    ],
)
@pytest.mark.usefixtures("run_dir")
def test_every_command_names_the_run_that_was_meant(command: Command[Any], words: str) -> None:
    with pytest.raises(NoSuchRunError) as error:
        command.call(words.split())
    assert str(error.value) == "no run 'demo-l' in runs: `longshore runs list` lists them; did you mean 'demo-1'?"


def test_a_missing_run_in_another_folder_names_that_folder(run_dir: Path) -> None:
    with pytest.raises(NoSuchRunError, match=f"no run 'x' in {run_dir}: it has no runs, and `longshore cluster demo`"):
        REPORT.call([str(run_dir / "x")])


@pytest.mark.usefixtures("run_dir")
def test_the_working_directory_is_named_if_it_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(NoSuchRunError, match=f"no run '{tmp_path.name}' in {tmp_path.parent}: "):
        REPLAY.call(["."])
