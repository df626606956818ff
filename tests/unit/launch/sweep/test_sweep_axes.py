"""If these fail, a sweep runs other points than were asked for, or two of them in one folder."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from launch.config.loader import Toml, parse_override
from launch.sweep.axes import (
    SweepAxis,
    build_points,
    flatten_keys,
    format_assignments,
    named_axis,
    parse_axis,
    plain_axis,
)
from protocol.errors import UserError
from protocol.run_directory.layout import RUN_ID_PATTERN


def test_the_points_are_the_product_of_the_axes_the_last_one_first() -> None:
    points = build_points([parse_axis("learner.loss=clip,gspo"), parse_axis("run.seed=0,1")])
    assert [point.name for point in points] == ["clip-seed0", "clip-seed1", "gspo-seed0", "gspo-seed1"]
    assert points[3].values == {"learner.loss": "gspo", "run.seed": 1}
    assert points[3].at == {"learner.loss": "gspo", "run.seed": "1"}


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
def test_values_are_what_set_would_make_of_each(word: str, values: list[Toml]) -> None:
    axis = parse_axis(word)
    assert [choice.values[axis.name] for choice in axis.choices] == values


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("run.seed", "write it as KEY=VALUE,VALUE"),
        ("run.seed=", "write it as KEY=VALUE,VALUE"),
        ("run.name=a,,b", "a value is empty"),
        ("run.seed=1,2,1", "1 is there twice"),
    ],
)
def test_a_word_that_is_no_axis_is_refused(word: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_axis(word)


def test_two_axes_of_one_key_are_refused() -> None:
    named = named_axis("objective", {"a": {"learner.loss": "clip"}, "b": {"learner.loss": "gspo", "learner.lr": 1e-4}})
    with pytest.raises(UserError, match=r"both set learner\.lr"):
        build_points([named, parse_axis("learner.lr=1e-3")])
    with pytest.raises(UserError, match=r"two axes run\.seed"):
        build_points([parse_axis("run.seed=1"), parse_axis("run.seed=2")])
    with pytest.raises(UserError, match="nothing varies"):
        build_points([])


def test_values_that_make_the_same_label_get_folders_of_their_own() -> None:
    names = [point.name for point in build_points([parse_axis("model=/a/best,/b/best")])]
    assert names == ["best", "best_2"]
    names = [point.name for point in build_points([parse_axis("model=/a/best,http://127.0.0.1:8000/v1")])]
    assert names == ["best", "127.0.0.1_8000_v1"]


KEYS = ("run.seed", "learner.lr", "model.path", "agent.kind")
VALUES = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(min_size=1, max_size=99))


@given(st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=len(KEYS)))
def test_every_point_has_a_folder_of_its_own(values: list[list[Toml]]) -> None:
    axes: list[SweepAxis] = []
    for key, each in zip(KEYS, values, strict=False):
        try:
            axes.append(plain_axis(key, each))
        except UserError:
            return
    points = build_points(axes)
    assert len({point.name for point in points}) == len(points)
    assert all(RUN_ID_PATTERN.fullmatch(f"sweep-{point.name}") for point in points)


@given(st.sampled_from(KEYS), VALUES)
@example("agent.kind", "\x7f")
def test_set_reads_a_value_as_it_was(key: str, value: Toml) -> None:
    (word,) = format_assignments({key: value})
    assert parse_override(word) == (key, value)


def test_a_table_that_is_a_value_is_read_as_it_was() -> None:
    value: Toml = {"a b": 1, "c": "x"}
    assert parse_override(format_assignments({"agent.options": value})[0]) == ("agent.options", value)
    assert flatten_keys({"agent": {"options": value, "kind": "x"}}, ["agent.options"]) == {
        "agent.options": value,
        "agent.kind": "x",
    }


def test_a_name_is_cut_and_told_apart() -> None:
    long = plain_axis("agent.kind", [f"{'x' * 200}{end}" for end in "ab"])
    one, other = (point.name for point in build_points([long]))
    assert one != other
    assert max(len(one), len(other)) < 100


def test_labels_do_not_run_into_each_other() -> None:
    axes = [plain_axis("agent.kind", ["a-b", "a"]), plain_axis("run.name", ["c", "b-c"])]
    names = [point.name for point in build_points(axes)]
    assert all(one != other for one, other in itertools.combinations(names, 2))
