"""If these fail, luck passes for learning, or learning for luck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.run.arguments import ClusterArguments, parse_cluster_arguments
from launch.run.proof import meets_expectation, run_proof
from launch.settings.run import NegativeControl, ProofSettings
from protocol.errors import InfraError, UserError
from protocol.events import JsonValue
from protocol.run_directory.layout import RunDirectoryError


def summary(
    difference: float | None, error: float = 0.05, *, ok: bool = True, end: float = 0.9, families: JsonValue = None
) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {"before": {"pass_at_1": 0.5, "stderr": 0.04}, "families": families or {}}
    if difference is not None:
        after = {"pass_at_1": end, "stderr": 0.04}
        found |= {"after": after, "difference": difference, "difference_stderr": error}
    return {"ok": ok, "seed": 0, "steps": 24, "evaluation": found}


@pytest.mark.parametrize(
    ("control", "difference", "verdict"),
    [
        (NegativeControl.NONE, 0.16, True),
        (NegativeControl.NONE, 0.15, False),
        (NegativeControl.NONE, -0.4, False),
        (NegativeControl.LR0, 0.15, True),
        (NegativeControl.LR0, -0.15, True),
        (NegativeControl.LR0, 0.16, False),
        (NegativeControl.LR0, -0.16, False),
        (NegativeControl.SHUFFLED, 0.15, True),
        (NegativeControl.SHUFFLED, 0.16, False),
        (NegativeControl.SHUFFLED, -0.9, True),
    ],
)
def test_three_standard_errors_tell_learning_from_luck(
    control: NegativeControl, difference: float, verdict: bool
) -> None:
    assert meets_expectation(control, summary(difference), ProofSettings()) is verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (summary(0.35, end=0.85), True),
        (summary(0.34, end=0.85), False),
        (summary(0.35, end=0.84), False),
        (summary(0.4, families={"copy": {"held_out": False, "difference": -0.2, "difference_stderr": 0.1}}), True),
        (summary(0.4, families={"copy": {"held_out": False, "difference": -0.3, "difference_stderr": 0.1}}), False),
        (summary(0.4, families={"copy": {"held_out": True, "difference": -0.3, "difference_stderr": 0.1}}), True),
        (summary(0.4, families={"copy": {"held_out": False, "difference": -1.0, "difference_stderr": None}}), True),
    ],
)
def test_the_run_must_meet_the_goals_of_its_recipe_without_harming_a_family(
    found: dict[str, JsonValue], verdict: bool
) -> None:
    promised = parse_cluster_arguments(["demo"]).load_config().proof
    assert (promised.min_improvement, promised.min_final_pass_at_1) == (0.35, 0.85)
    assert meets_expectation(NegativeControl.NONE, found, promised) is verdict


@pytest.mark.parametrize("control", list(NegativeControl))
def test_without_both_evaluations_nothing_is_proved(control: NegativeControl) -> None:
    assert not meets_expectation(control, summary(None), ProofSettings())


def run_all(results: dict[NegativeControl, Any], run_id: str | None = "p") -> tuple[dict[str, JsonValue], list[str]]:
    """The proof's result, and the run ids that it asked for."""
    calls: list[str] = []

    def run_once(arguments: ClusterArguments) -> dict[str, JsonValue]:
        calls.append(str(arguments.run_id))
        result = results[arguments.load_config().run.negative_control]
        if isinstance(result, Exception):
            raise result
        return result

    arguments = parse_cluster_arguments(["demo", "--proof"]).model_copy(update={"run_id": run_id})
    return run_proof(arguments, run_once), calls


GOOD = {
    NegativeControl.NONE: summary(0.4),
    NegativeControl.LR0: summary(0.01),
    NegativeControl.SHUFFLED: summary(-0.05),
}


def test_the_run_and_both_controls_have_separate_names() -> None:
    proof, calls = run_all(GOOD)
    assert calls == ["p-none", "p-lr0", "p-shuffled"]
    assert proof["ok"] is True
    assert proof["verdicts"] == {"none": True, "lr0": True, "shuffled": True}


def test_the_verdicts_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    run_all(GOOD)
    assert "difference" in capsys.readouterr().out


def test_one_control_that_learns_spoils_the_proof() -> None:
    proof, _ = run_all(GOOD | {NegativeControl.SHUFFLED: summary(0.3)})
    assert proof["ok"] is False
    assert proof["verdicts"] == {"none": True, "lr0": True, "shuffled": False}


def test_a_run_that_failed_its_checks_proves_nothing() -> None:
    assert run_all(GOOD | {NegativeControl.NONE: summary(0.4, ok=False)})[0]["ok"] is False


def test_a_failing_control_does_not_discard_the_finished_run(capsys: pytest.CaptureFixture[str]) -> None:
    proof, calls = run_all(GOOD | {NegativeControl.LR0: InfraError("the disk is full")})
    assert calls == ["p-none", "p-lr0", "p-shuffled"]
    assert proof["verdicts"] == {"none": True, "lr0": False, "shuffled": True}
    assert proof["runs"]["lr0"] == {"ok": False, "error": "the disk is full"}
    assert "the disk is full" in capsys.readouterr().err


def test_a_run_that_fails_proves_nothing() -> None:
    with pytest.raises(InfraError):
        run_all(GOOD | {NegativeControl.NONE: InfraError("the disk is full")})


def test_a_name_in_use_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "p-shuffled").mkdir()
    arguments = parse_cluster_arguments(["demo", "--proof", "--run-id", "p", "--set", f"run.dir={tmp_path}"])
    with pytest.raises(RunDirectoryError, match="p-shuffled exists"):
        run_proof(arguments, lambda _: pytest.fail("it ran"))


def test_a_proof_is_refused_if_its_configuration_makes_no_evaluations() -> None:
    arguments = parse_cluster_arguments(["demo", "--proof", "--set", "evaluation.tasks_per_family=0"])
    with pytest.raises(UserError, match="makes none"):
        run_proof(arguments, lambda _: pytest.fail("it ran"))


def test_a_proof_with_missing_evaluations_fails_but_keeps_its_table() -> None:
    proof, _ = run_all(GOOD | {NegativeControl.NONE: summary(None)})
    assert proof["verdicts"] == {"none": False, "lr0": True, "shuffled": True}
