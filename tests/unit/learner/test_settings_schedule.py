"""If these fail, a run trains with another learning rate than its recipe says."""

from __future__ import annotations

import pytest

from tests.support.runs.learner_specs import make_spec


def test_a_learning_rate_without_an_end_is_constant() -> None:
    settings = make_spec("model", lr=1e-3)
    assert {settings.lr_at(step) for step in (1, 10, 1000)} == {1e-3}


def test_the_rate_falls_linearly_to_its_end_value_and_stays_there() -> None:
    settings = make_spec("model", lr=1e-3, lr_end=2e-4, total_steps=9)
    assert settings.lr_at(1) == 1e-3
    assert settings.lr_at(5) == pytest.approx(6e-4)
    assert settings.lr_at(9) == pytest.approx(2e-4)
    assert settings.lr_at(100) == pytest.approx(2e-4)


def test_the_rate_rises_to_that_line_during_warm_up() -> None:
    settings = make_spec("model", lr=1e-3, lr_end=2e-4, total_steps=9, lr_warmup_steps=3)
    line = make_spec("model", lr=1e-3, lr_end=2e-4, total_steps=9)
    for step in (1, 2, 3):
        assert settings.lr_at(step) == pytest.approx(step / 4 * line.lr_at(step))
    assert settings.lr_at(4) == line.lr_at(4)
    assert make_spec("model", lr=1e-3, lr_warmup_steps=3).lr_at(9) == 1e-3


def test_a_requested_rate_holds_from_its_step_and_the_last_request_wins() -> None:
    """Otherwise a restarted learner, or a replay, would take steps at another learning rate than the first one."""
    line = make_spec("model", lr=1e-3, lr_end=2e-4, total_steps=9)
    spec = make_spec("model", lr=1e-3, lr_end=2e-4, total_steps=9, lr_changes=((3, 5e-3), (6, 0.0), (6, 7e-3)))
    assert [spec.lr_at(step) for step in (1, 2)] == [line.lr_at(step) for step in (1, 2)]
    assert [spec.lr_at(step) for step in (3, 4, 5, 6, 100)] == [5e-3, 5e-3, 5e-3, 7e-3, 7e-3]
