"""If these fail, a sweep runs other points than were asked for, or two of them in one folder, or refuses too late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from launch.config.command_line import format_overrides
from launch.config.loader import RECIPES, Toml, parse_override
from launch.sweep.definition import (
    Settings,
    Sweep,
    SweepAxis,
    SweepFile,
    SweepKind,
    build_sweep,
    key_axis,
    parse_axis,
    read_definition,
    sweep_names,
)
from launch.sweep.training_points import METRICS, TrainingPoints
from protocol.errors import UserError
from protocol.run_directory.layout import RUN_ID_PATTERN

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


def sweep_of(folder: Path, text: str = FILE, *axes: str, sets: Settings | None = None) -> Sweep:
    name, file = read_definition(str(written(folder, text)))
    return build_sweep(file, name, sets or {}, [*map(parse_axis, axes)])


def names(axes: Sequence[SweepAxis]) -> list[str]:
    return [point.name for point in build_sweep(SweepFile(), "", {}, axes).points]


def test_the_points_are_the_product_of_the_axes_and_the_last_axis_varies_fastest() -> None:
    points = build_sweep(SweepFile(), "", {}, [parse_axis("learner.loss=clip,gspo"), parse_axis("run.seed=0,1")]).points
    assert [point.name for point in points] == ["clip-seed0", "clip-seed1", "gspo-seed0", "gspo-seed1"]
    assert points[3].settings == {"learner.loss": "gspo", "run.seed": 1}
    assert points[3].axes == {"learner.loss": "gspo", "run.seed": "1"}


def test_a_sweep_file_defines_its_points(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    assert [point.name for point in sweep.points] == ["grpo-seed0", "grpo-seed1", "gspo-seed0", "gspo-seed1"]
    assert sweep.settings(sweep.points[0]) == {"staleness.max_staleness": 4, "learner.eps_high": 0.28, "run.seed": 0}
    assert sweep.settings(sweep.points[2])["learner.eps_high"] == 0.04
    assert sweep.points[2].axes == {"objective": "gspo", "run.seed": "0"}
    assert (sweep.seed_axis, sweep.goal) == ("run.seed", {"difference": 0.3})
    assert sweep.folder == Path("sweeps/mine").absolute()
    assert sweep.points[0].folder == sweep.folder / "runs" / "mine-grpo-seed0"


def test_the_command_line_wins(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, FILE, "run.seed=7", sets={"staleness.max_staleness": 2})
    assert [point.name for point in sweep.points] == ["grpo-seed7", "gspo-seed7"]
    assert sweep.common["staleness.max_staleness"] == 2


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("learner.lr=1e-4,2e-4", [1e-4, 2e-4]),
        ("learner.betas=[0.9, 0.95],[0.9, 0.99]", [[0.9, 0.95], [0.9, 0.99]]),
        ("run.mode=sync,async", ["sync", "async"]),
        ("agent.tools=true,false", [True, False]),
        ("data.path=/a/b c,/d", ["/a/b c", "/d"]),
        ("model=/a/qwen,http://127.0.0.1:1/v1", ["/a/qwen", "http://127.0.0.1:1/v1"]),
    ],
)
def test_axis_values_are_parsed_as_set_parses_them(word: str, values: list[Toml]) -> None:
    axis = parse_axis(word)
    assert [settings[axis.name] for settings in axis.choices.values()] == values


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        (["run.seed"], "write it as KEY=VALUE,VALUE"),
        (["run.seed="], "write it as KEY=VALUE,VALUE"),
        (["run.name=a,,b"], "a value is empty"),
        (["run.seed=1,2,1"], "1 is there twice"),
        (["learner.loss=clip"], r"axis objective and axis learner\.loss both set learner\.loss"),
        (["run.seed=1", "run.seed=2"], r"both set run\.seed"),
        (["learner.eps_low=0.1"], r"--set and axis learner\.eps_low both set it"),
    ],
)
def test_invalid_or_conflicting_axes_are_refused(tmp_path: Path, axes: list[str], says: str) -> None:
    says = says.replace("set it", r"set learner\.eps_low")
    with pytest.raises(UserError, match=says):
        sweep_of(tmp_path, FILE, *axes, sets={"learner.eps_low": 0.2})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[common]\nrun.steps = 3", "nothing varies"),
        ("[axes]\nrun.sed = [1]", "axis run.sed: unknown key 'run.sed'; did you mean 'run.seed'"),
        ("[axes]\nrun.seed = 1", r"run.seed = \[VALUE, VALUE\]"),
        ("[axes]\nobjective.loss = ['a']", "'loss' is not a table of keys"),
        (
            "[common]\nlearner.loos = 'clip'\n[axes]\nrun.sed = [1]",
            "common part: .*'learner.loos'.*; also: .*'run.sed'",
        ),
        ("[common]\nrun.dir = '/x'\n[axes]\nrun.seed = [1]", "--output FOLDER"),
        ("[axes]\nrun.seed = []", "axis run.seed has no values"),
        ("[axes.objective]", "axis objective has no values"),
        ("[axes]\ntemperature = [1]", "it is an option of evaluate: --evaluate"),
        ("kind = 'evaluate'\n[axes]\ntemperatur = [1]", "did you mean 'temperature'"),
        ("kind = 'trian'\n[axes]\nrun.seed = [1]", "kind: must be 'train' or 'evaluate'"),
        ("axis = 1\n[axes]\nrun.seed = [1]", "unknown key 'axis'; did you mean 'axes'"),
        ("[axes]\nrun.seed = [1", "is not valid TOML"),
    ],
)
def test_an_invalid_sweep_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        sweep_of(tmp_path, text)


def test_a_value_that_is_refused_is_named_once() -> None:
    axes = [parse_axis("learner.eps_low=0.2,3"), parse_axis("run.seed=0,1")]
    with pytest.raises(UserError) as refused:
        TrainingPoints(build_sweep(SweepFile(), "", {}, axes))
    assert str(refused.value) == "point eps_low3-seed0: recipe demo: learner.eps_low: must be below 1, not 3"


def test_a_recipe_is_read_as_a_sweep_without_axes(tmp_path: Path) -> None:
    path = written(tmp_path, "[common]\nrun.steps = 3")
    assert read_definition(str(path))[0] == "mine"
    assert read_definition("objectives")[0] == "objectives"
    for recipe in ("demo", str(RECIPES / "demo.toml")):
        assert read_definition(recipe) == ("", SweepFile(recipe=recipe))
    with pytest.raises(UserError, match="did you mean 'objectives'"):
        read_definition("objectivs")
    with pytest.raises(UserError, match=r"cannot read /nowhere\.toml"):
        read_definition("/nowhere.toml")


@pytest.mark.parametrize(
    ("axes", "labels"),
    [
        (["model=/a/best,/b/best"], ["best", "best_2"]),
        (["model=/a/best,http://127.0.0.1:8000/v1"], ["best", "127.0.0.1_8000_v1"]),
        (["agent.kind=x_3,x_2,a/x,b/x,c/x"], ["x_3", "x_2", "x", "x_4", "x_5"]),
        (["agent.kind=a-b,a", "run.name=c,b-c"], ["a_b-c", "a_b-b_c", "a-c", "a-b_c"]),
    ],
)
def test_values_with_the_same_label_get_distinct_point_names(axes: list[str], labels: list[str]) -> None:
    file = SweepFile(kind=SweepKind.EVALUATE)
    assert [point.name for point in build_sweep(file, "", {}, [*map(parse_axis, axes)]).points] == labels


KEYS = ("run.seed", "learner.lr", "model.path", "agent.kind")
VALUES = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(min_size=1, max_size=99))


@given(st.lists(st.lists(VALUES, min_size=1, max_size=4, unique=True), min_size=1, max_size=len(KEYS)))
def test_every_point_has_a_separate_folder(values: list[list[Toml]]) -> None:
    points = build_sweep(
        SweepFile(), "", {}, [key_axis(key, each) for key, each in zip(KEYS, values, strict=False)]
    ).points
    assert len({point.folder for point in points}) == len(points)
    assert all(RUN_ID_PATTERN.fullmatch(point.folder.name) for point in points)


@given(st.sampled_from(KEYS), VALUES)
@example("agent.kind", "\x7f")
@example("agent.options", {"a b": 1, "c": "x"})
def test_an_override_written_for_set_is_read_back_unchanged(key: str, value: Toml) -> None:
    (word,) = format_overrides({key: value})
    assert parse_override(word) == (key, value)


def test_long_point_names_are_shortened_and_stay_distinct() -> None:
    one, other = names([key_axis("agent.kind", [f"{'x' * 200}{end}" for end in "ab"])])
    assert one != other
    assert max(len(one), len(other)) < 100


@pytest.mark.parametrize("name", sweep_names())
def test_every_sweep_of_ours_loads(name: str) -> None:
    sweep = build_sweep(read_definition(name)[1], name, {}, [])
    assert sweep.about
    if sweep.kind is SweepKind.TRAIN:
        TrainingPoints(sweep)
        assert sweep.goal.keys() <= {column.key for column in METRICS}


def test_the_objectives_sweep_has_four_objectives_with_three_seeds() -> None:
    configs = TrainingPoints(build_sweep(read_definition("objectives")[1], "objectives", {}, [])).configs
    assert len(configs) == 12
    assert {config.staleness.max_staleness for config in configs.values()} == {4}
    assert {config.run.seed for config in configs.values()} == {0, 1, 2}
    losses = {name.partition("-")[0]: config.objective for name, config in configs.items()}
    kinds = {name: objective.policy_loss.loss for name, objective in losses.items()}
    assert kinds == {"grpo": "clip", "gspo": "gspo", "cispo": "cispo", "decoupled": "clip"}
    assert losses["grpo"].policy_loss.aggregation == "token_mean"
    assert losses["decoupled"].policy_loss.minibatches == 2
    assert losses["decoupled"].corrections.proximal == "recomputed"


def test_a_points_settings_are_its_configuration(tmp_path: Path) -> None:
    config = TrainingPoints(sweep_of(tmp_path)).configs["gspo-seed1"]
    assert (config.staleness.max_staleness, config.learner.loss, config.run.seed) == (4, "gspo", 1)
