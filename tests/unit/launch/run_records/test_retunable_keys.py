"""If these fail, a run can be retuned into what it cannot do, or a key that cannot change is changed half."""

from __future__ import annotations

import pytest

from launch.config import RunConfig, load_recipe
from launch.run_records.retunable_keys import (
    RETUNABLE_KEYS,
    KeyChange,
    apply_changes,
    diff_configs,
    parse_change,
    resolve_retunable_key,
)
from launch.run_records.stored_config import is_fixed_key
from protocol.errors import UserError
from protocol.settings import dotted_fields


def test_every_retunable_key_exists_and_is_not_fixed() -> None:
    assert set(RETUNABLE_KEYS) <= set(dotted_fields(RunConfig))
    assert [key for key in RETUNABLE_KEYS if is_fixed_key(key)] == []


def test_a_change_gives_a_new_configuration_and_names_the_old_value() -> None:
    before = load_recipe("demo")
    after = apply_changes(before, dict(map(parse_change, ["in_flight=8", "rollout.max_steps_ahead=1.5", "lr=1e-4"])))
    assert (after.rollout.in_flight, after.rollout.max_steps_ahead, after.learner.lr) == (8, 1.5, 1e-4)
    assert diff_configs(before, after) == [
        KeyChange("rollout.in_flight", before.rollout.in_flight, 8),
        KeyChange("rollout.max_steps_ahead", None, 1.5),
        KeyChange("learner.lr", before.learner.lr, 1e-4),
    ]
    assert (
        str(KeyChange("rollout.max_steps_ahead", None, 1.5))
        == "rollout.max_steps_ahead none → 1.5, from the next rollout request"
    )


def test_a_key_without_a_value_gets_its_default() -> None:
    config = apply_changes(load_recipe("demo"), {"rollout.max_steps_ahead": "2", "rollout.in_flight": "8"})
    again = apply_changes(config, dict([parse_change("rollout.max_steps_ahead="), parse_change("in_flight=")]))
    assert (again.rollout.max_steps_ahead, again.rollout.in_flight) == (None, 0)


def test_a_requested_learning_rate_removes_the_end_of_the_old_schedule() -> None:
    config = load_recipe("demo", ["learner.lr_end=0.0"])
    assert apply_changes(config, {"learner.lr": "1e-3"}).learner.lr_end is None
    assert apply_changes(config, {"rollout.in_flight": "3"}).learner.lr_end == 0.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("in_flight", "write KEY=VALUE"),
        ("in_fligt=3", "did you mean 'in_flight'"),
        ("staleness.max_staleness=9", "checkpoints depend on it"),
        ("engine.count=2", "--resume ID --set engine.count=VALUE"),
        ("warp=9", "these can be changed: rollout.in_flight"),
    ],
)
def test_a_key_that_cannot_be_changed_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_change(text)


@pytest.mark.parametrize(
    "change",
    ["rollout.in_flight=-1", "rollout.slack=-0.1", "learner.lr=-1", "learner.lr=fast", "checkpoint.every_steps=0"],
)
def test_a_value_out_of_bounds_is_refused_with_its_key(change: str) -> None:
    key, value = parse_change(change)
    with pytest.raises(UserError, match=key):
        apply_changes(load_recipe("demo"), {key: value})


def test_a_change_has_to_agree_with_the_rest() -> None:
    with pytest.raises(UserError, match=r"learner\.publish_every = 9 with staleness\.max_staleness"):
        apply_changes(load_recipe("demo"), {"learner.publish_every": "9"})


def test_keys_are_accepted_by_full_or_short_name() -> None:
    assert (
        resolve_retunable_key("run.stall_timeout_s")
        == resolve_retunable_key("stall_timeout_s")
        == "run.stall_timeout_s"
    )
