"""If these fail, a recipe that does not run is told to run, or one that fails costs the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.bench.recipes import benchmark as recipes
from launch.bench.recipes.benchmark import (
    RecipeBenchmarkOptions,
    RecipeBenchmarkReport,
    RecipeResult,
    RecipesArguments,
    find_failures,
    parse_options,
    read_recipe_result,
)
from launch.config import RunConfig, recipe_names
from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError


def options(*words: str) -> RecipeBenchmarkOptions:
    return parse_options(parse_arguments(RecipesArguments, words, "bench"))


def test_all_recipes_are_tried_unless_some_are_named() -> None:
    assert list(options().recipes) == recipe_names()
    assert options("art_terminal", "art_terminal").recipes == ("art_terminal",)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["art_termnal"], "did you mean 'art_terminal'"),
        (["--steps", "0"], "argument --steps: must be at least 1"),
        (["--output", "."], "is not an empty folder"),
        (["--output", __file__], "is not an empty folder"),
    ],
)
def test_unknown_recipes_and_invalid_options_are_refused(words: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        options(*words)


def test_the_result_of_a_recipe_is_read_from_its_run_directory(tmp_path: Path) -> None:
    lines = [
        {"step": 1, "part_bonus": 0.5, "reward_mean": 0.75, "loss": 1.0, "grad_norm": 0.5},
        {"step": 2, "part_bonus": 0.0, "reward_mean": 0.25, "loss": 2.0, "grad_norm": 0.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "summary.json").write_text('{"trajectories": {"trained": 16}}')
    assert read_recipe_result(tmp_path, "miles", 3.21) == RecipeResult(
        True, "miles", 2, 16, (0.75, 0.25), (1.0, 2.0), (0.5, 0.0), {"bonus": 0.25}, 3.2
    )


def test_a_run_that_ended_before_its_first_step_counts_zero_steps(tmp_path: Path) -> None:
    assert read_recipe_result(tmp_path, "code", 1.0) == RecipeResult(True, "code", seconds=1.0)


def wrote(run_dir: Path, steps: int, summary: str = "", grad_norm: float = 0.5) -> Path:
    run_dir.mkdir()
    lines = [{"step": step, "grad_norm": grad_norm} for step in range(1, steps + 1)]
    (run_dir / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if summary:
        (run_dir / "summary.json").write_text(summary)
    return run_dir


def test_a_run_that_lacks_something_is_a_failure(tmp_path: Path) -> None:
    assert find_failures(wrote(tmp_path / "a", 2, '{"failed_checks": []}'), 2) == []
    assert find_failures(wrote(tmp_path / "b", 1), 2) == [f"1 of 2 steps, see {tmp_path / 'b'}"]
    assert find_failures(wrote(tmp_path / "c", 2), 2) == [f"it did not come to its end, see {tmp_path / 'c'}"]
    incomplete = wrote(tmp_path / "d", 2, '{"failed_checks": ["2 containers were left behind"]}')
    assert find_failures(incomplete, 2) == [f"2 containers were left behind, see {incomplete}"]
    untrained = wrote(tmp_path / "e", 2, '{"failed_checks": []}', grad_norm=0.0)
    assert find_failures(untrained, 2) == [f"nothing was learned, every gradient is 0, see {untrained}"]


async def test_a_recipe_counts_as_loaded_even_if_the_machine_cannot_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_here(config: RunConfig) -> None:
        raise UserError("no Docker engine answers")

    monkeypatch.setattr(recipes, "run_preflight_checks", nothing_here)
    report = await recipes.measure_recipes(options("--output", str(tmp_path / "tries")))
    assert report.results == dict.fromkeys(recipe_names(), RecipeResult(loads=True))
    assert "art_terminal: no Docker engine answers" in report.failures
    assert not report.passed


def test_the_report_has_a_key_for_each_recipe_and_nothing_else() -> None:
    report = RecipeBenchmarkReport(
        {
            "a": RecipeResult(False),
            "b": RecipeResult(True, "code", 1, 16, (0.5,), (0.1,), (2.0,), {"bonus": 0.25}, 3.2),
        },
        ["a: why"],
    )
    assert not report.passed
    assert report.as_json()["b"] == {
        "loads": True, "data_format": "code", "steps_run": 1, "trained": 16, "rewards": (0.5,), "losses": (0.1,),
        "grad_norms": (2.0,), "reward_parts": {"bonus": 0.25}, "seconds": 3.2,
    }  # fmt: skip
    assert set(report.as_json()) == {"a", "b"}
