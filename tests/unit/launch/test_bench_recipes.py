"""If these fail, a recipe that does not run is told to run, or one that fails costs the others."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from launch.bench.recipes import Options, Report, Tried, add_options, options, tried
from protocol.errors import UserError


def asked(*words: str) -> Options:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return options(parser.parse_args(words))


def test_all_recipes_are_tried_unless_some_are_named() -> None:
    assert len(asked().recipes) == 5
    assert "demo" not in asked().recipes
    assert asked("--recipe", "art_terminal", "--recipe", "art_terminal").recipes == ("art_terminal",)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--recipe", "art_termnal"], "did you mean 'art_terminal'"),
        (["--steps", "0"], "write 1 or more"),
        (["--folder", "."], "is not empty"),
    ],
)
def test_what_cannot_be_tried_is_refused(words: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        asked(*words)


def test_a_run_is_told_as_its_directory_says(tmp_path: Path) -> None:
    lines = [{"step": 1, "part_bonus": 0.5, "loss": 1.0}, {"step": 2, "part_bonus": 0.0, "loss": 1.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "summary.json").write_text('{"trajectories": {"trained": 16}}')
    assert tried(tmp_path, 3.21) == Tried(True, 2, 16, {"bonus": 0.25}, 3.2)


def test_a_run_that_never_came_to_a_step_has_run_none(tmp_path: Path) -> None:
    assert tried(tmp_path, 1.0) == Tried(True, 0, 0, None, 1.0)


def test_the_report_has_a_key_for_each_recipe_and_nothing_else() -> None:
    report = Report({"a": Tried(False), "b": Tried(True, 2, 16, {"bonus": 0.25}, 3.2)}, ["a: why"])
    assert not report.holds
    assert report.as_json()["b"] == {
        "loads": True, "steps_run": 2, "trained": 16, "reward_parts": {"bonus": 0.25}, "seconds": 3.2
    }  # fmt: skip
    assert set(report.as_json()) == {"a", "b"}
