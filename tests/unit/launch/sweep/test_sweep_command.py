"""If these fail, a script cannot tell a sweep that is done from one that is not, or a person what to do next."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.processes.background_tasks import background_services
from launch.sweep import __main__ as command
from launch.sweep.definition import Sweep
from launch.sweep.sweep_loop import report_progress
from launch.sweep.training_points import TrainingPoints
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USER
from protocol.cli.output import error_console

FILE = """
about = "two seeds"
[axes]
run.seed = [0, 1]
[common]
run.steps = 3
[goal]
difference = 0.3
"""
Sweeping = Callable[..., int]


class UncheckedRuns(TrainingPoints):
    """Runs of the fake, which needs no machine."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep, (sys.executable, "-m", "tests.support.fakes.fake_cluster"))

    def preflight(self, points: object) -> None: ...


@pytest.fixture
def sweeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweeping:
    """The command on a sweep's file, its runs being fakes."""
    monkeypatch.setattr(command, "TrainingPoints", UncheckedRuns)

    def run(*options: str, text: str = FILE, **behaviour: list[str]) -> int:
        file, out = tmp_path / "mine.toml", tmp_path / "out"
        file.write_text(text)
        if behaviour:
            (out / "runs").mkdir(parents=True)
            (out / "sweep.csv").touch()
            starts = {f"out-{name}": each for name, each in behaviour.items()}
            (out / "runs" / "behaviour.json").write_text(json.dumps(starts))
        return command.COMMAND.main([str(file), "--output", str(out), *options])

    return run


def test_a_sweep_leaves_a_summary_a_table_and_a_page(
    sweeping: Sweeping, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweeping() == EXIT_OK
    out = tmp_path / "out"
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["ok"], summary["complete"], summary["missed"]) == (True, True, [])
    assert [point["values"]["difference"] for point in summary["points"]] == [0.5, 0.5]
    assert summary["over_seeds"][0]["values"]["difference"] == {"mean": 0.5, "std": 0.0, "n": 2}
    assert len((out / "sweep.csv").read_text().splitlines()) == 3
    assert "two seeds" in (out / "report.html").read_text()
    progress = capsys.readouterr().err
    for line in ("2 points, 2 to run", "seed0: started", "seed1: ended: pass@1 before 0.250, after 0.750"):
        assert line in progress


def test_a_dry_run_prints_the_points_for_people_and_one_object_for_scripts(
    sweeping: Sweeping, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert sweeping("--dry-run") == EXIT_OK
    assert capfd.readouterr().out.splitlines()[:3] == [
        "point  state    settings",
        "seed0  planned  run.seed=0",
        "seed1  planned  run.seed=1",
    ]
    assert sweeping("--dry-run", "--json") == EXIT_OK
    assert json.loads(capfd.readouterr().out)["to_run"] == ["seed0", "seed1"]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_failed_point_is_named_with_the_remedy(
    sweeping: Sweeping, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweeping(seed0=["break"]) == EXIT_FAILED
    output = "".join(capsys.readouterr())
    assert "failed: seed0: the engine is gone: repeat the command to continue it" in output
    assert "seed1: ended" in output
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["complete"] is False
    assert sweeping() == EXIT_OK
    assert "2 points, 1 to run" in capsys.readouterr().err


@pytest.mark.slow
def test_a_goal_that_is_missed_is_no_success(sweeping: Sweeping, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweeping(text=FILE.replace("0.3", "0.6")) == EXIT_FAILED
    assert "the goal was missed by seed0, seed1" in capsys.readouterr().out


def test_only_the_requested_points_are_run_and_judged(
    sweeping: Sweeping, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweeping("--only", "*", "--only", "!*0") == EXIT_OK
    states = {each["name"]: each["state"] for each in json.loads((tmp_path / "out/summary.json").read_text())["points"]}
    assert states == {"seed0": "planned", "seed1": "ended"}
    assert sweeping("--only", "seed7") == EXIT_USER
    assert "no point is named seed7: they are seed0, seed1" in capsys.readouterr().err


def test_a_goal_of_an_unknown_metric_is_refused_before_anything_starts(
    sweeping: Sweeping, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweeping(text=FILE.replace("difference", "diference")) == EXIT_USER
    assert "goal: there is no metric 'diference'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_recipes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.COMMAND.main(["demo", "art_terminal", "--axis", "run.seed=0"]) == EXIT_USER
    assert "are two recipes" in capsys.readouterr().err


def test_a_folder_of_something_else_is_left_alone(
    sweeping: Sweeping, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    assert sweeping() == EXIT_USER
    assert "holds something other than a sweep" in capsys.readouterr().err


async def test_a_running_point_is_reported_once_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.touch()
    async with background_services(report_progress("seed0", log, error_console(), interval_s=0)):
        for text in ("training\nstep 1/3\n", "training\nstep 1/3\n", "training\nstep 1/3\nstep 2/3\n"):
            log.write_text(text)
            for _ in range(3):
                await asyncio.sleep(0)
    assert capsys.readouterr().err.splitlines() == ["seed0: step 1/3", "seed0: step 2/3"]


@pytest.mark.slow
def test_a_folder_with_another_kind_of_sweep_is_not_overwritten(
    sweeping: Sweeping, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweeping("--dry-run") == EXIT_OK
    assert sweeping(text=FILE.replace("0.3", "0")) == EXIT_OK
    assert sweeping("--evaluate") == EXIT_USER
    assert "is a sweep of another kind (train, not evaluate): choose another folder" in capsys.readouterr().err
