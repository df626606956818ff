"""Points that are evaluations, in this process: those of one model share its server, which is started once.

Each has an evaluation's folder of its own, so that it goes on by task and attempt where it was broken off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from launch.config.loader import Toml
from launch.config.toml_text import format_toml
from launch.evaluation.evaluation_options import EvaluateArguments, SolverKind
from launch.evaluation.results.evaluation_folder import (
    check_evaluation_folder,
    open_evaluation_folder,
    read_attempt_records,
)
from launch.evaluation.standalone.evaluation import (
    StandaloneEvaluation,
    build_evaluation,
    resolve_model_name,
    run_evaluation,
    write_results,
)
from launch.sweep.axes import SweepPoint, format_assignments
from launch.sweep.definition import Sweep
from launch.sweep.point_problems import PointProblems
from launch.sweep.point_results import FigureFormat, PointResult, PointState, ResultColumn
from launch.sweep.point_scheduler import PointListener, run_scheduled
from launch.sweep.sweep_folder import SweepFolder, point_folder
from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError, iterate_leaf_errors

if TYPE_CHECKING:
    from actors.engines.interface import Engine
    from actors.engines.settings import EngineSpec

COLUMNS = (
    ResultColumn("pass_at_1", "pass@1", FigureFormat.SHARE),
    ResultColumn("low", "from", FigureFormat.SHARE),
    ResultColumn("high", "to", FigureFormat.SHARE),
    ResultColumn("pass_at_most", "pass@attempts", FigureFormat.SHARE),
    ResultColumn("reward", "reward", FigureFormat.NUMBER),
    ResultColumn("graded", "graded", FigureFormat.COUNT),
    ResultColumn("errors", "errors", FigureFormat.COUNT),
    ResultColumn("tokens", "tokens sampled", FigureFormat.COUNT),
    ResultColumn("seconds", "seconds", FigureFormat.COUNT),
)


_SOLVER_OPTIONS = frozenset({"model", "oracle", "noop"})


def configure_evaluations(sweep: Sweep, folder: Path) -> dict[str, StandaloneEvaluation]:
    """Point's name → its evaluation, in the sweep's ``folder``.  Raises UserError for all that is refused at once."""
    keys = {key for point in sweep.points for key in sweep.values(point)}
    if "tasks" not in keys or not keys & _SOLVER_OPTIONS:
        raise UserError(
            "a sweep of evaluations says at which tasks, and whose: --set tasks=LABEL|PATH and --set model=PATH|URL "
            "(or oracle=true, noop=true), or an axis of them"
        )
    found, problems = dict[str, StandaloneEvaluation](), PointProblems()
    for point in sweep.points:
        try:
            found[point.name] = build_evaluation(_point_options(sweep, point, point_folder(folder, sweep.kind, point)))
        except UserError as error:
            problems.add(point, str(error))
    problems.raise_if_any()
    return found


def _point_options(sweep: Sweep, point: SweepPoint, output: Path) -> EvaluateArguments:
    """As evaluate's own command line has it.  Raises UserError."""
    values = sweep.values(point)
    options = [word for key, value in values.items() if "." not in key for word in _option(key, value)]
    sets = [f"--set={each}" for each in format_assignments({key: value for key, value in values.items() if "." in key})]
    words = [sweep.recipe, *options, *sets, f"--output={output}"]
    given = parse_arguments(EvaluateArguments, words, "python -m launch.evaluate")
    given.check()
    return given


def _option(key: str, value: Toml) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}"] if value else []
    each = value if isinstance(value, list) else [value]
    return [f"--{key}={one if isinstance(one, str) else format_toml(one)}" for one in each]


@dataclass(frozen=True, slots=True)
class EvaluationPoints:
    """The evaluations of a sweep in ``folder``."""

    sweep: Sweep
    evaluations: Mapping[str, StandaloneEvaluation]
    folder: Path
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """What this command has to say of those that could not be."""

    @property
    def columns(self) -> Sequence[ResultColumn]:
        return COLUMNS

    def point_folder(self, point: SweepPoint) -> Path:
        return point_folder(self.folder, self.sweep.kind, point)

    def check_existing(self) -> None:
        for point in self.sweep.points:
            check_evaluation_folder(self.point_folder(point), self.evaluations[point.name].spec)

    def preflight(self, points: Sequence[SweepPoint]) -> None:
        from launch.data.preparation import require_model_files
        from sandbox.host_record import current_host, require_answering_engine

        require_answering_engine(current_host())
        for point in points:
            if (wanted := self.evaluations[point.name].arguments).solver is SolverKind.SERVED:
                require_model_files(Path(wanted.model or ""))

    def read_result(self, point: SweepPoint) -> PointResult:
        evaluation, done = self.evaluations[point.name], read_attempt_records(self.point_folder(point))
        summary = evaluation.summarise(self.point_folder(point).name, done)
        if not summary.total_trajs:
            why = self.failed.get(point.name, "")
            return PointResult(PointState.FAILED if why else PointState.PLANNED, why)
        one, most = summary.pass_at_k.get("1"), summary.pass_at_k.get(str(evaluation.arguments.attempts))
        figures = {
            "pass_at_1": one.value if one else None,
            "low": one.low if one else None,
            "high": one.high if one else None,
            "pass_at_most": most.value if most else None,
            "reward": summary.reward.mean if summary.reward else None,
            "graded": summary.graded,
            "errors": summary.error_count,
            "tokens": summary.tokens.completion,
            "seconds": summary.seconds,
        }
        known = {key: value for key, value in figures.items() if value is not None}
        if why := self.failed.get(point.name):
            return PointResult(PointState.FAILED, why, known)
        if evaluation.remaining_attempts(done):
            return PointResult(PointState.BROKEN_OFF, "", known)
        if summary.error_count:
            return PointResult(PointState.FAILED, f"{summary.error_count} attempts have no verdict", known)
        return PointResult(PointState.ENDED, "", known)

    def retry_advice(self, point: SweepPoint) -> str:
        if point.name in self.failed:
            return "the same command goes on with it"
        return "the same command with --set retry-errors=true tries them again"

    async def run_points(
        self, points: Sequence[SweepPoint], parallel: int, folder: SweepFolder, listener: PointListener
    ) -> None:
        from launch.evaluation.solvers.models import serve_model

        for number, (server, together) in enumerate(self._servers(points, folder)):
            named = None if server is None else replace(server, name=f"engine-{number}")
            try:
                async with nullcontext() if named is None else serve_model(named) as engine:
                    await self._on(engine, together, parallel, folder, listener)
            except Exception as error:  # noqa: BLE001  # the boundary: a server that fails costs its own points, and is named
                for point in together:
                    if self.read_result(point).state in {PointState.PLANNED, PointState.BROKEN_OFF}:
                        self.failed[point.name] = _said(error)
                        listener.point_ended(point)

    def _servers(
        self, points: Sequence[SweepPoint], folder: SweepFolder
    ) -> list[tuple[EngineSpec | None, list[SweepPoint]]]:
        """Which points one server does for; those that need none come first."""
        from launch.evaluation.solvers.models import build_engine_spec

        found: list[tuple[EngineSpec | None, list[SweepPoint]]] = [(None, [])]
        for point in points:
            evaluation = self.evaluations[point.name]
            served = evaluation.arguments.solver is SolverKind.SERVED
            server = build_engine_spec(evaluation.arguments, evaluation.config, folder.directory) if served else None
            together = next((others for known, others in found if known == server), None)
            if together is None:
                found.append((server, together := []))
            together.append(point)
        return [each for each in found if each[1]]

    async def _on(
        self,
        engine: Engine | None,
        points: Sequence[SweepPoint],
        at_once: int,
        folder: SweepFolder,
        heard: PointListener,
    ) -> None:
        async def run(point: SweepPoint) -> None:
            log = folder.log_file(point)
            heard.point_started(point, log)
            try:
                await self._run(point, log, engine)
            except Exception as error:  # noqa: BLE001  # the boundary: what goes wrong costs one point, and is named
                self.failed[point.name] = _said(error)
            heard.point_ended(point)

        await run_scheduled(points, at_once, lambda _: True, run)

    async def _run(self, point: SweepPoint, log: Path, engine: Engine | None) -> None:
        with log.open("w", encoding="utf-8") as said:
            evaluation = await resolve_model_name(self.evaluations[point.name])
            console = Console(file=said, soft_wrap=True, markup=False, highlight=False)
            for line in evaluation.selection.left_out:
                console.print(f"left out: {line}")
            with open_evaluation_folder(self.point_folder(point), evaluation.spec) as folder:
                try:
                    await run_evaluation(
                        evaluation, evaluation.remaining_attempts(folder.records), folder, console, engine
                    )
                finally:
                    write_results(evaluation, folder)


def _said(error: Exception) -> str:
    first = next(iterate_leaf_errors(error))
    return " ".join(str(first).split()) or type(first).__name__
