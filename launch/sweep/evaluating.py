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

from launch.config.load import Toml
from launch.evaluate.arguments import Asked, Who, asked, parser
from launch.evaluate.evaluation import Evaluation, evaluation_of, named, work, write_outputs
from launch.evaluate.folder import check, opened, read_attempts
from launch.sweep.axes import Point, assignments, toml
from launch.sweep.definition import Sweep
from launch.sweep.figures import Column, Outcome, Shape, State
from launch.sweep.folder import SweepFolder, place
from launch.sweep.problems import Problems
from launch.sweep.schedule import Listener, scheduled
from protocol.errors import UserError, leaves

if TYPE_CHECKING:
    from actors.engines.engine import Engine
    from actors.engines.settings import EngineSettings

COLUMNS = (
    Column("pass_at_1", "pass@1", Shape.SHARE),
    Column("low", "from", Shape.SHARE),
    Column("high", "to", Shape.SHARE),
    Column("pass_at_most", "pass@attempts", Shape.SHARE),
    Column("reward", "reward", Shape.NUMBER),
    Column("graded", "graded", Shape.COUNT),
    Column("errors", "errors", Shape.COUNT),
    Column("tokens", "tokens sampled", Shape.COUNT),
    Column("seconds", "seconds", Shape.COUNT),
)


_WHO = frozenset({"model", "oracle", "noop"})


def configured(sweep: Sweep, folder: Path) -> dict[str, Evaluation]:
    """Point's name → its evaluation, in the sweep's ``folder``.  Raises UserError for all that is refused at once."""
    keys = {key for point in sweep.points for key in sweep.values(point)}
    if "tasks" not in keys or not keys & _WHO:
        raise UserError(
            "a sweep of evaluations says at which tasks, and whose: --set tasks=LABEL|PATH and --set model=PATH|URL "
            "(or oracle=true, noop=true), or an axis of them"
        )
    found, problems = dict[str, Evaluation](), Problems()
    for point in sweep.points:
        try:
            found[point.name] = evaluation_of(_asked(sweep, point, place(folder, sweep.kind, point)))
        except UserError as error:
            problems.add(point, str(error))
    problems.done()
    return found


def _asked(sweep: Sweep, point: Point, output: Path) -> Asked:
    """As evaluate's own command line has it.  Raises UserError."""
    values = sweep.values(point)
    options = [word for key, value in values.items() if "." not in key for word in _option(key, value)]
    sets = [f"--set={each}" for each in assignments({key: value for key, value in values.items() if "." in key})]
    return asked(parser().parse_args([sweep.recipe, *options, *sets, f"--output={output}"]))


def _option(key: str, value: Toml) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}"] if value else []
    each = value if isinstance(value, list) else [value]
    return [f"--{key}={one if isinstance(one, str) else toml(one)}" for one in each]


@dataclass(frozen=True, slots=True)
class Evaluations:
    """The evaluations of a sweep in ``folder``."""

    sweep: Sweep
    each: Mapping[str, Evaluation]
    folder: Path
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """What this command has to say of those that could not be."""

    @property
    def columns(self) -> Sequence[Column]:
        return COLUMNS

    def place(self, point: Point) -> Path:
        return place(self.folder, self.sweep.kind, point)

    def check(self) -> None:
        for point in self.sweep.points:
            check(self.place(point), self.each[point.name].what)

    def preflight(self, points: Sequence[Point]) -> None:
        from launch.prepare import check_model
        from sandbox.host import answering, current_host

        answering(current_host())
        for point in points:
            if (wanted := self.each[point.name].wanted).who is Who.SERVED:
                check_model(Path(wanted.model))

    def outcome(self, point: Point) -> Outcome:
        evaluation, done = self.each[point.name], read_attempts(self.place(point))
        summary = evaluation.summary(self.place(point).name, done)
        if not summary.total_trajs:
            why = self.failed.get(point.name, "")
            return Outcome(State.FAILED if why else State.PLANNED, why)
        one, most = summary.pass_at_k.get("1"), summary.pass_at_k.get(str(evaluation.wanted.attempts))
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
            return Outcome(State.FAILED, why, known)
        if evaluation.left(done):
            return Outcome(State.BROKEN_OFF, "", known)
        if summary.error_count:
            return Outcome(State.FAILED, f"{summary.error_count} attempts have no verdict", known)
        return Outcome(State.ENDED, "", known)

    def again(self, point: Point) -> str:
        if point.name in self.failed:
            return "the same command goes on with it"
        return "the same command with --set retry-errors=true tries them again"

    async def carry_out(self, points: Sequence[Point], at_once: int, folder: SweepFolder, heard: Listener) -> None:
        from launch.evaluate.model import serving

        for number, (server, together) in enumerate(self._servers(points, folder)):
            named = None if server is None else replace(server, name=f"engine-{number}")
            try:
                async with nullcontext() if named is None else serving(named) as engine:
                    await self._on(engine, together, at_once, folder, heard)
            except Exception as error:  # noqa: BLE001  # the boundary: a server that fails costs its own points, and is named
                for point in together:
                    if self.outcome(point).state in {State.PLANNED, State.BROKEN_OFF}:
                        self.failed[point.name] = _said(error)
                        heard.ended(point)

    def _servers(self, points: Sequence[Point], folder: SweepFolder) -> list[tuple[EngineSettings | None, list[Point]]]:
        """Which points one server does for; those that need none come first."""
        from launch.evaluate.model import server_settings

        found: list[tuple[EngineSettings | None, list[Point]]] = [(None, [])]
        for point in points:
            evaluation = self.each[point.name]
            served = evaluation.wanted.who is Who.SERVED
            server = server_settings(evaluation.wanted, evaluation.config, folder.directory) if served else None
            together = next((others for known, others in found if known == server), None)
            if together is None:
                found.append((server, together := []))
            together.append(point)
        return [each for each in found if each[1]]

    async def _on(
        self, engine: Engine | None, points: Sequence[Point], at_once: int, folder: SweepFolder, heard: Listener
    ) -> None:
        async def run(point: Point) -> None:
            log = folder.log(point)
            heard.begun(point, log)
            try:
                await self._run(point, log, engine)
            except Exception as error:  # noqa: BLE001  # the boundary: what goes wrong costs one point, and is named
                self.failed[point.name] = _said(error)
            heard.ended(point)

        await scheduled(points, at_once, lambda _: True, run)

    async def _run(self, point: Point, log: Path, engine: Engine | None) -> None:
        with log.open("w", encoding="utf-8") as said:
            evaluation = await named(self.each[point.name])
            console = Console(file=said, soft_wrap=True, markup=False, highlight=False)
            for line in evaluation.chosen.left_out:
                console.print(f"left out: {line}")
            with opened(self.place(point), evaluation.what) as folder:
                try:
                    await work(evaluation, evaluation.left(folder.done), folder, console, engine)
                finally:
                    write_outputs(evaluation, folder)


def _said(error: Exception) -> str:
    first = next(leaves(error))
    return " ".join(str(first).split()) or type(first).__name__
