"""Points that are evaluations: each is ``longshore evaluate``, which continues by task and attempt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

from launch.config.command_line import format_overrides
from launch.config.loader import Toml
from launch.config.toml_text import format_toml
from launch.evaluation.evaluation_options import EvaluateArguments, SolverKind
from launch.evaluation.results.evaluation_folder import check_evaluation_folder, read_attempt_records
from launch.evaluation.results.evaluation_summary import EvaluationSummary
from launch.evaluation.scores import PassAtK
from launch.evaluation.standalone.evaluation import StandaloneEvaluation, build_evaluation
from launch.sweep.definition import Sweep, SweepPoint
from launch.sweep.sweep_table import PointResult, PointState, ResultColumn, measure
from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError

PROGRAM = (sys.executable, "-m", "launch.evaluation.evaluate")
METRICS: dict[ResultColumn, Callable[[EvaluationSummary], float | None]] = {
    ResultColumn("pass_at_1", "pass@1", ".3f"): lambda found: (first := _pass_at(found, 1)) and first.value,
    ResultColumn("low", "from", ".3f"): lambda found: (first := _pass_at(found, 1)) and first.low,
    ResultColumn("high", "to", ".3f"): lambda found: (first := _pass_at(found, 1)) and first.high,
    ResultColumn("pass_at_most", "pass@attempts", ".3f"): lambda found: (
        (most := _pass_at(found, found.eval.n_trajs)) and most.value
    ),
    ResultColumn("reward", "reward", ".2f"): lambda found: found.reward and found.reward.mean,
    ResultColumn("graded", "graded", ",.0f"): lambda found: found.graded,
    ResultColumn("errors", "errors", ",.0f"): lambda found: found.error_count,
    ResultColumn("tokens", "tokens sampled", ",.0f"): lambda found: found.tokens.completion,
    ResultColumn("seconds", "seconds", ",.0f"): lambda found: found.seconds,
}


class EvaluationPoints:
    columns = tuple(METRICS)

    def __init__(self, sweep: Sweep, program: Sequence[str] = PROGRAM) -> None:
        """Configure all points.  Raises UserError for one that cannot run, or whose folder has another evaluation."""
        self.sweep, self.program = sweep, program
        keys = {key for point in sweep.points for key in sweep.settings(point)}
        if "tasks" not in keys or not keys & {"model", "oracle", "noop"}:
            raise UserError(
                "a sweep of evaluations needs tasks and a solver: --set tasks=LABEL|PATH --set model=PATH|URL (or "
                "oracle=true, noop=true), or an axis of them"
            )
        self.evaluations = sweep.configure_points(self._build_evaluation)

    def preflight(self, points: Sequence[SweepPoint]) -> None:
        from launch.data.preparation import require_model_files
        from sandbox.host_record import current_host, require_answering_engine

        require_answering_engine(current_host())
        for point in points:
            if (given := self.evaluations[point.name].arguments).solver is SolverKind.SERVED:
                require_model_files(Path(given.model or ""))

    def read_result(self, point: SweepPoint) -> PointResult:
        evaluation, done = self.evaluations[point.name], read_attempt_records(point.folder)
        if not done:
            return PointResult(PointState.PLANNED)
        summary = evaluation.summarise(point.name, done)
        values = measure(METRICS, summary)
        if evaluation.remaining_attempts(done):
            return PointResult(PointState.INTERRUPTED, values=values)
        return PointResult(
            PointState.FAILED if summary.error_count else PointState.ENDED,
            f"{summary.error_count} attempts have no verdict" if summary.error_count else "",
            "repeat the command with --set retry-errors=true to run them again",
            values,
        )

    def command_line(self, point: SweepPoint) -> list[str]:
        return [*self.program, *self._options(point)]

    def wait_for_turn(self, point: SweepPoint) -> AbstractAsyncContextManager[None]:
        """Return at once: evaluations share nothing."""
        del point
        return nullcontext()

    def _build_evaluation(self, point: SweepPoint) -> StandaloneEvaluation:
        given = parse_arguments(EvaluateArguments, self._options(point), "longshore evaluate")
        given.check()
        evaluation = build_evaluation(given)
        check_evaluation_folder(point.folder, evaluation.spec)
        return evaluation

    def _options(self, point: SweepPoint) -> list[str]:
        values = self.sweep.settings(point)
        options = [word for key, value in values.items() if "." not in key for word in _option(key, value)]
        overrides = format_overrides({key: value for key, value in values.items() if "." in key})
        return [self.sweep.recipe, *options, *(f"--set={each}" for each in overrides), f"--output={point.folder}"]


def _pass_at(summary: EvaluationSummary, k: int) -> PassAtK | None:
    return summary.pass_at_k.get(str(k))


def _option(key: str, value: Toml) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}"] if value else []
    values = value if isinstance(value, list) else [value]
    return [f"--{key}={each if isinstance(each, str) else format_toml(each)}" for each in values]
