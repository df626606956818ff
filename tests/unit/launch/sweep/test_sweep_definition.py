"""If these fail, a sweep's file means something else than it says, or is refused too late."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.config import load_recipe
from launch.config.loader import RECIPES
from launch.evaluation.evaluation_options import EvaluateArguments
from launch.sweep.axes import format_assignments, parse_axis
from launch.sweep.definition import (
    EVALUATE_OPTIONS,
    Sweep,
    SweepFile,
    SweepKind,
    build_sweep,
    find_sweep_file,
    read_sweep_file,
    sweep_names,
)
from launch.sweep.training_points import COLUMNS, configure_runs
from protocol.cli.arguments import option_name
from protocol.errors import UserError

FILE = """
about = "two objectives"
recipe = "demo"

[common]
staleness.max_staleness = 4
learner.eps_high = 0.28

[axes.objective.grpo]
[axes.objective.gspo]
learner.loss = "gspo"
learner.eps_high = 0.04

[axes]
run.seed = [0, 1]

[goal]
difference = 0.3
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def sweep_of(folder: Path, text: str = FILE) -> Sweep:
    return build_sweep("mine", read_sweep_file(written(folder, text)), {}, [])


def test_a_file_says_its_points(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    assert [point.name for point in sweep.points] == ["grpo-seed0", "grpo-seed1", "gspo-seed0", "gspo-seed1"]
    assert sweep.values(sweep.points[0]) == {"staleness.max_staleness": 4, "learner.eps_high": 0.28, "run.seed": 0}
    assert sweep.values(sweep.points[2])["learner.eps_high"] == 0.04
    assert sweep.seed_axis == "run.seed"
    assert sweep.goal == {"difference": 0.3}


def test_the_command_line_wins(tmp_path: Path) -> None:
    sweep = build_sweep(
        "mine", read_sweep_file(written(tmp_path, FILE)), {"staleness.max_staleness": 2}, [parse_axis("run.seed=7")]
    )
    assert [point.name for point in sweep.points] == ["grpo-seed7", "gspo-seed7"]
    assert sweep.common["staleness.max_staleness"] == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[axes]\nrun.sed = [1]", "axis run.sed: unknown key 'run.sed'; did you mean 'run.seed'"),
        ("[axes]\nrun.seed = 1", r"run.seed = \[VALUE, VALUE\]"),
        ("[axes]\nobjective.loss = ['a']", "'loss' is no table of keys"),
        ("[common]\nlearner.loos = 'clip'\n[axes]\nrun.seed = [1]", "common part: unknown key 'learner.loos'"),
        ("[common]\nrun.dir = '/x'\n[axes]\nrun.seed = [1]", "--output FOLDER"),
        ("[axes]\nrun.seed = []", "axis run.seed has no values"),
        ("[axes.objective]", "axis objective has no values"),
        ("[axes]\ntemperature = [1]", "it is an option of evaluate: --evaluate"),
        ("kind = 'evaluate'\n[axes]\ntemperatur = [1]", "did you mean 'temperature'"),
        ("kind = 'trian'\n[axes]\nrun.seed = [1]", "kind: input should be 'train' or 'evaluate'"),
        ("axis = 1\n[axes]\nrun.seed = [1]", "unknown key 'axis'; did you mean 'axes'"),
        ("[axes]\nrun.seed = [1", "is not valid TOML"),
    ],
)
def test_what_a_file_cannot_mean_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        sweep_of(tmp_path, text)


def test_a_value_that_is_refused_is_named_once() -> None:
    axes = [parse_axis("learner.eps_low=0.2,3"), parse_axis("run.seed=0,1")]
    with pytest.raises(UserError) as refused:
        configure_runs(build_sweep("", SweepFile(), {}, axes))
    assert str(refused.value).count("learner.eps_low") == 1
    assert "point eps_low3-seed0: learner.eps_low: input should be less than 1, not 3" in str(refused.value)


def test_a_file_whose_axes_come_with_the_command_line_is_a_sweep(tmp_path: Path) -> None:
    path = written(tmp_path, "[common]\nrun.steps = 3")
    assert find_sweep_file(str(path)) == path
    assert find_sweep_file(str(RECIPES / "demo.toml")) is None


def test_a_recipe_is_no_sweep() -> None:
    assert find_sweep_file("demo") is None
    assert find_sweep_file("objectives") is not None
    with pytest.raises(UserError, match="did you mean 'objectives'"):
        find_sweep_file("objectivs")
    with pytest.raises(UserError, match=r"cannot read /nowhere\.toml"):
        find_sweep_file("/nowhere.toml")


def test_evaluate_has_every_option_that_may_be_swept() -> None:
    known = {option_name(EvaluateArguments, field) for field in EvaluateArguments.model_fields}
    assert {f"--{option}" for option in EVALUATE_OPTIONS} <= known


@pytest.mark.parametrize("name", sweep_names())
def test_every_sweep_of_ours_loads(name: str) -> None:
    path = find_sweep_file(name)
    assert path is not None
    file = read_sweep_file(path)
    sweep = build_sweep(name, file, {}, [])
    assert sweep.about
    if sweep.kind is SweepKind.TRAIN:
        configure_runs(sweep)
        assert sweep.goal.keys() <= {column.key for column in COLUMNS}


def test_the_objectives_are_what_the_sweep_says() -> None:
    path = find_sweep_file("objectives")
    assert path is not None
    sweep = build_sweep("objectives", read_sweep_file(path), {}, [])
    configs = configure_runs(sweep)
    assert len(configs) == 12
    assert {config.staleness.max_staleness for config in configs.values()} == {4}
    assert {config.run.seed for config in configs.values()} == {0, 1, 2}
    losses = {name.partition("-")[0]: config.objective for name, config in configs.items()}
    assert [losses[name].policy_loss.loss for name in ("grpo", "gspo", "cispo", "decoupled")] == [
        "clip",
        "gspo",
        "cispo",
        "clip",
    ]
    assert losses["grpo"].policy_loss.aggregation == "token_mean"
    assert losses["decoupled"].policy_loss.minibatches == 2
    assert losses["decoupled"].corrections.proximal == "recomputed"


def test_a_points_values_are_its_configuration(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    config = load_recipe(sweep.recipe, format_assignments(sweep.values(sweep.points[3])))
    assert (config.staleness.max_staleness, config.learner.loss, config.run.seed) == (4, "gspo", 1)
