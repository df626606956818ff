"""If these fail, a script cannot tell a sweep that is done from one that is not, or a person what to do next."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.config import RunConfig
from launch.sweep import __main__ as command
from launch.sweep import training_points
from launch.sweep.axes import parse_axis
from launch.sweep.definition import Sweep, SweepFile, build_sweep
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK

FILE = """
[axes]
run.seed = [0, 1]
[common]
run.steps = 3
[goal]
difference = 0.3
"""
Sweeping = Callable[..., int]


class UncheckedRuns(training_points.TrainingPoints):
    """Runs of the fake, which needs no machine."""

    def preflight(self, points: object) -> None: ...


@pytest.fixture
def sweeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweeping:
    """The command on a sweep's file, its runs being fakes."""
    file = tmp_path / "mine.toml"

    def runs(sweep: Sweep, configs: dict[str, RunConfig], folder: Path) -> UncheckedRuns:
        return UncheckedRuns(sweep, configs, folder, (sys.executable, "-m", "tests.support.fake_cluster"))

    monkeypatch.setattr(training_points, "TrainingPoints", runs)

    def run(*options: str, text: str = FILE, **behaviour: list[str]) -> int:
        file.write_text(text)
        place = tmp_path / "out" / "runs"
        place.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / "sweep.json").write_text('{"kind": "train", "recipe": "demo"}')
        place.joinpath("behaviour.json").write_text(
            json.dumps({f"out-{name}": starts for name, starts in behaviour.items()})
        )
        return command.COMMAND.main([str(file), "--output", str(tmp_path / "out"), *options])

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
    assert "mine" in (out / "report.html").read_text()
    said = capsys.readouterr().err
    assert "2 points, 2 to run" in said
    assert "seed0: started" in said
    assert "seed1: ended: pass@1 before 0.250, after 0.750" in said


def test_one_that_failed_is_named_with_what_to_do(
    sweeping: Sweeping, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweeping(seed0=["break"]) == EXIT_FAILED
    said = "".join(capsys.readouterr())
    assert "failed: seed0: the engine is gone: repeat the command to continue it" in said
    assert "seed1: ended" in said
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["complete"] is False
    assert sweeping() == EXIT_OK
    assert "2 points, 1 to run" in capsys.readouterr().err


def test_a_goal_that_is_missed_is_no_success(sweeping: Sweeping, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweeping(text=FILE.replace("0.3", "0.6")) == EXIT_FAILED
    assert "the goal was missed by seed0, seed1" in capsys.readouterr().out


def test_only_what_is_asked_for_is_run_and_judged(
    sweeping: Sweeping, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweeping("--only", "*1") == EXIT_OK
    states = {each["name"]: each["state"] for each in json.loads((tmp_path / "out/summary.json").read_text())["points"]}
    assert states == {"seed0": "planned", "seed1": "ended"}
    assert "2 points, 1 to run" in capsys.readouterr().err


def test_a_goal_of_an_unknown_figure_is_refused_before_anything_starts(
    sweeping: Sweeping, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweeping(text=FILE.replace("difference", "diference")) == 2
    assert "goal: there is no metric 'diference'" in capsys.readouterr().err
    assert not (tmp_path / "out" / "runs" / "calls.jsonl").exists()


def test_a_recipe_and_another_recipe_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.COMMAND.main(["demo", "art_terminal", "--axis", "run.seed=0"]) == 2
    assert "are two recipes" in capsys.readouterr().err


def test_a_running_point_is_reported_once_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = build_sweep("s", SweepFile(), {}, [parse_axis("run.seed=0")])
    points, log = (
        training_points.TrainingPoints(sweep, training_points.configure_runs(sweep), tmp_path),
        tmp_path / "log",
    )
    points.running["seed0"] = log
    for text in ("training\nstep 1/3\n", "training\nstep 1/3\n", "training\nstep 1/3\nstep 2/3\n"):
        log.write_text(text)
        points.print_new_lines()
    assert capsys.readouterr().err.splitlines() == ["seed0: step 1/3", "seed0: step 2/3"]
