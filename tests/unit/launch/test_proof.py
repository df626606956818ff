"""If these fail, luck passes for learning, or learning for luck."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.args import ClusterArguments, parse
from launch.config import Control
from launch.proof import holds, prove
from protocol.events import Json


def summary(difference: float | None, error: float = 0.05, *, ok: bool = True) -> dict[str, Json]:
    score = {"pass_at_1": 0.25, "stderr": 0.04}
    found: dict[str, Json] = {"before": score}
    if difference is not None:
        found |= {"after": score, "difference": difference, "difference_stderr": error}
    return {"ok": ok, "seed": 0, "steps": 24, "eval": found}


@pytest.mark.parametrize(
    ("control", "difference", "verdict"),
    [
        (Control.NONE, 0.16, True),
        (Control.NONE, 0.15, False),
        (Control.NONE, -0.4, False),
        (Control.LR0, 0.15, True),
        (Control.LR0, -0.15, True),
        (Control.LR0, 0.16, False),
        (Control.LR0, -0.16, False),
        (Control.SHUFFLED, 0.15, True),
        (Control.SHUFFLED, 0.16, False),
        (Control.SHUFFLED, -0.9, True),
    ],
)
def test_three_standard_errors_tell_learning_from_luck(control: Control, difference: float, verdict: bool) -> None:
    assert holds(control, summary(difference)) is verdict


@pytest.mark.parametrize("control", list(Control))
def test_without_both_evaluations_nothing_is_proved(control: Control) -> None:
    assert not holds(control, summary(None))


def run_all(results: dict[Control, dict[str, Json]], run_id: str | None = "p") -> tuple[dict[str, Json], list[str]]:
    """The proof's result, and the run ids that it asked for."""
    asked: list[str] = []

    def run_once(arguments: ClusterArguments) -> dict[str, Json]:
        asked.append(str(arguments.run_id))
        return results[arguments.config().run.control]

    arguments = replace(parse(["--recipe", "demo", "--proof"]), run_id=run_id)
    return prove(arguments, run_once), asked


GOOD = {
    Control.NONE: summary(0.3),
    Control.LR0: summary(0.01),
    Control.SHUFFLED: summary(-0.05),
}


def test_the_run_and_both_controls_are_run_under_names_of_their_own() -> None:
    proof, asked = run_all(GOOD)
    assert asked == ["p-none", "p-lr0", "p-shuffled"]
    assert proof["ok"] is True
    assert proof["verdicts"] == {"none": True, "lr0": True, "shuffled": True}


def test_one_control_that_learns_spoils_the_proof() -> None:
    proof, _ = run_all(GOOD | {Control.SHUFFLED: summary(0.3)})
    assert proof["ok"] is False
    assert proof["verdicts"] == {"none": True, "lr0": True, "shuffled": False}


def test_a_run_whose_own_checks_failed_proves_nothing() -> None:
    assert run_all(GOOD | {Control.NONE: summary(0.3, ok=False)})[0]["ok"] is False


def test_a_proof_without_evaluations_says_no_and_keeps_its_table() -> None:
    proof, _ = run_all(GOOD | {Control.NONE: summary(None)})
    assert proof["verdicts"] == {"none": False, "lr0": True, "shuffled": True}
