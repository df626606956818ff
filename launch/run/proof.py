"""``--proof``: the run, and the two controls that must not learn.

The run must raise pass@1 by more than three standard errors of the difference and by what its recipe promises
(``[proof]``), without a family that falls by more than two of its own.  Learning rate 0 must change pass@1 by less than
three standard errors; rewards shuffled within the batch must not raise it by more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from rich.table import Table

from launch.run.arguments import ClusterArguments
from launch.run_records.run_directory import require_new_run
from launch.settings.run import NegativeControl, ProofSettings
from protocol.cli.output import error_console, output_console
from protocol.errors import LongshoreError, UserError
from protocol.events import JsonValue

RUN_STANDARD_ERRORS, FAMILY_STANDARD_ERRORS = 3.0, 2.0
RunOnce = Callable[[ClusterArguments], dict[str, JsonValue]]


def run_proof(arguments: ClusterArguments, run_once: RunOnce) -> dict[str, JsonValue]:
    """Run all three, print a table, and give every summary with its verdict.  A control that fails does not take the
    finished runs' figures along.  Raises UserError where nothing could be proved, before anything runs."""
    runs: dict[str, JsonValue] = {}
    verdicts: dict[str, bool] = {}
    config = arguments.load_config()
    if not config.evaluation.tasks_per_family:
        raise UserError("--proof compares evaluations and evaluation.tasks_per_family = 0 makes none: raise it")
    each = {control: f"{arguments.run_id}-{control.value}" if arguments.run_id else None for control in NegativeControl}
    for name in filter(None, each.values()):
        require_new_run(config.run.dir, name)
    for control, name in each.items():
        overrides = (*arguments.overrides, f'run.negative_control="{control.value}"')
        summary: dict[str, JsonValue]
        try:
            summary = run_once(arguments.model_copy(update={"overrides": overrides, "run_id": name}))
        except LongshoreError as error:
            if not runs:
                raise
            error_console().print(f"{control.value}: {error}")
            summary = {"ok": False, "error": str(error)}
        runs[control.value] = summary
        verdicts[control.value] = bool(summary["ok"]) and meets_expectation(control, summary, config.proof)
    _print(runs, verdicts)
    return {"ok": all(verdicts.values()), "verdicts": cast("dict[str, JsonValue]", verdicts), "runs": runs}


def meets_expectation(control: NegativeControl, summary: dict[str, JsonValue], promised: ProofSettings) -> bool:
    """Return whether a run's change of pass@1 is what its kind must show."""
    evaluation = cast("dict[str, float]", summary["evaluation"])
    if evaluation.get("difference_stderr") is None:
        return False
    difference, error = evaluation["difference"], evaluation["difference_stderr"]
    match control:
        case NegativeControl.NONE:
            rose = difference > RUN_STANDARD_ERRORS * error and difference >= promised.min_improvement
            return rose and _end(summary) >= promised.min_final_pass_at_1 and not list_fallen_families(summary)
        case NegativeControl.LR0:
            return abs(difference) <= RUN_STANDARD_ERRORS * error
        case NegativeControl.SHUFFLED:
            return difference <= RUN_STANDARD_ERRORS * error


def list_fallen_families(summary: dict[str, JsonValue]) -> list[str]:
    """Trained families whose pass@1 fell by more than chance; a family with a single task is never among them."""
    families = cast("dict[str, dict[str, dict[str, float | None]]]", summary["evaluation"])["families"]
    return [name for name, row in families.items() if not row["held_out"] and _fell(row)]


def _fell(row: dict[str, float | None]) -> bool:
    difference, error = row["difference"], row["difference_stderr"]
    return difference is not None and error is not None and difference < -FAMILY_STANDARD_ERRORS * error


def _end(summary: dict[str, JsonValue]) -> float:
    return cast("dict[str, dict[str, float]]", summary["evaluation"])["after"]["pass_at_1"]


def _print(runs: dict[str, JsonValue], verdicts: dict[str, bool]) -> None:
    table = Table(title="proof")
    for column in ("run", "seed", "steps", "pass@1 before", "after", "difference", "holds"):
        table.add_column(column)
    for name, value in runs.items():
        summary = cast("dict[str, JsonValue]", value)
        evaluation = cast("dict[str, Any]", summary.get("evaluation", {}))
        scores = [
            f"{found['pass_at_1']:.3f}{_spread(found['stderr'])}" if (found := evaluation.get(each)) else "–"
            for each in ("before", "after")
        ]
        change = "–"
        if "difference" in evaluation:
            change = f"{evaluation['difference']:+.3f}{_spread(evaluation['difference_stderr'])}"
        verdict = "yes" if verdicts[name] else "NO"
        table.add_row(name, str(summary.get("seed", "–")), str(summary.get("steps", "–")), *scores, change, verdict)
    output_console().print(table)


def _spread(error: float | None) -> str:
    return "" if error is None else f" ± {error:.3f}"
