"""Points that are evaluations: each is ``longshore evaluate``, which continues by task and attempt."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.config.loader import Toml
from launch.config.toml_text import format_toml
from launch.evaluation.evaluation_options import EvaluateArguments, SolverKind
from launch.evaluation.results.evaluation_folder import check_evaluation_folder, read_attempt_records
from launch.evaluation.standalone.evaluation import StandaloneEvaluation, build_evaluation
from launch.sweep.axes import SweepPoint, format_assignments
from launch.sweep.definition import Sweep
from launch.sweep.sweep_folder import point_folder
from launch.sweep.sweep_points import SweepPoints
from launch.sweep.sweep_table import PointResult, PointState, ResultColumn
from protocol.cli.arguments import parse_arguments
from protocol.cli.output import error_console
from protocol.errors import UserError

PROGRAM = (sys.executable, "-m", "launch.evaluation.evaluate")
COLUMNS = (
    ResultColumn("pass_at_1", "pass@1", ".3f"),
    ResultColumn("low", "from", ".3f"),
    ResultColumn("high", "to", ".3f"),
    ResultColumn("pass_at_most", "pass@attempts", ".3f"),
    ResultColumn("reward", "reward", ".2f"),
    ResultColumn("graded", "graded", ",.0f"),
    ResultColumn("errors", "errors", ",.0f"),
    ResultColumn("tokens", "tokens sampled", ",.0f"),
    ResultColumn("seconds", "seconds", ",.0f"),
)


def configure_evaluations(sweep: Sweep, folder: Path) -> dict[str, StandaloneEvaluation]:
    """Return point's name → its evaluation, in the sweep's ``folder``.  Raises UserError."""
    keys = {key for point in sweep.points for key in sweep.values(point)}
    if "tasks" not in keys or not keys & {"model", "oracle", "noop"}:
        raise UserError(
            "a sweep of evaluations needs tasks and a solver: --set tasks=LABEL|PATH and --set model=PATH|URL (or "
            "oracle=true, noop=true), or an axis of them"
        )
    found: dict[str, StandaloneEvaluation] = {}
    for point in sweep.points:
        try:
            words = _command_line(sweep, point, point_folder(folder, sweep.kind, point))
            given = parse_arguments(EvaluateArguments, words, "longshore evaluate")
            given.check()
            found[point.name] = build_evaluation(given)
        except UserError as error:
            raise UserError(f"point {point.name}: {error}") from error
    return found


def _command_line(sweep: Sweep, point: SweepPoint, output: Path) -> list[str]:
    values = sweep.values(point)
    options = [word for key, value in values.items() if "." not in key for word in _option(key, value)]
    overrides = format_assignments({key: value for key, value in values.items() if "." in key})
    return [sweep.recipe, *options, *(f"--set={each}" for each in overrides), f"--output={output}"]


def _option(key: str, value: Toml) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}"] if value else []
    values = value if isinstance(value, list) else [value]
    return [f"--{key}={each if isinstance(each, str) else format_toml(each)}" for each in values]


class EvaluationPoints(SweepPoints):
    columns = COLUMNS

    def __init__(
        self,
        sweep: Sweep,
        evaluations: Mapping[str, StandaloneEvaluation],
        folder: Path,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        super().__init__(sweep, folder, program, error_console())
        self.evaluations = evaluations

    def check_existing(self) -> None:
        for point in self.sweep.points:
            check_evaluation_folder(self.point_folder(point), self.evaluations[point.name].spec)

    def preflight(self, points: Sequence[SweepPoint]) -> None:
        from launch.data.preparation import require_model_files
        from sandbox.host_record import current_host, require_answering_engine

        require_answering_engine(current_host())
        for point in points:
            if (given := self.evaluations[point.name].arguments).solver is SolverKind.SERVED:
                require_model_files(Path(given.model or ""))

    def read_result(self, point: SweepPoint) -> PointResult:
        evaluation, done = self.evaluations[point.name], read_attempt_records(self.point_folder(point))
        summary, why = evaluation.summarise(point.name, done), self.failed.get(point.name, "")
        if not done:
            return PointResult(PointState.FAILED if why else PointState.PLANNED, why)
        first, most = summary.pass_at_k.get("1"), summary.pass_at_k.get(str(evaluation.arguments.attempts))
        values = {
            "pass_at_1": first.value if first else None,
            "low": first.low if first else None,
            "high": first.high if first else None,
            "pass_at_most": most.value if most else None,
            "reward": summary.reward.mean if summary.reward else None,
            "graded": summary.graded,
            "errors": summary.error_count,
            "tokens": summary.tokens.completion,
            "seconds": summary.seconds,
        }
        known = {key: value for key, value in values.items() if value is not None}
        if summary.complete and summary.error_count:
            return PointResult(PointState.FAILED, f"{summary.error_count} attempts have no verdict", known)
        if evaluation.remaining_attempts(done):
            return PointResult(PointState.FAILED if why else PointState.INTERRUPTED, why, known)
        return PointResult(PointState.ENDED, "", known)

    def retry_advice(self, point: SweepPoint) -> str:
        if self.evaluations[point.name].remaining_attempts(read_attempt_records(self.point_folder(point))):
            return "repeat the command to continue it"
        return "repeat the command with --set retry-errors=true to run them again"

    def command_line(self, point: SweepPoint) -> list[str]:
        return _command_line(self.sweep, point, self.point_folder(point))
