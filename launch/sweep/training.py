"""Points that are training runs: each is the run's own command in a process of its own, in a folder of its own.

What has ended is not run again, and what was broken off goes on by the run's own resume.  Runs that begin alike
(:mod:`.starts`) share the warm start and the evaluation before training: the first of them makes both, the others wait
until it has.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from launch.config import ConfigError, RunConfig, load_recipe
from launch.config.load import Toml
from launch.guardian import Guardian
from launch.program import run_program
from launch.rundir import CONFIG_FILE, SUMMARY_FILE, config_values, stored_config
from launch.sweep.axes import Point, assignments
from launch.sweep.definition import Sweep
from launch.sweep.figures import Column, Outcome, State
from launch.sweep.folder import SweepFolder, place
from launch.sweep.logs import last_line
from launch.sweep.problems import Problems
from launch.sweep.runs import COLUMNS, outcome_of
from launch.sweep.schedule import Listener, scheduled
from launch.sweep.starts import has_begun, is_evaluated, start_key
from protocol.errors import UserError

PROGRAM = (sys.executable, "-m", "launch.cluster")
_MAY_DIFFER = ("run.dir", "evaluation.before", "monitor.")
"""Keys that may be others than those of a run that is there; a final dot means the whole section."""
_SHARED = {"evaluation.before": False}


def configured(sweep: Sweep) -> dict[str, RunConfig]:
    """Point's name → its run's configuration.  Raises ConfigError for all that is refused at once."""
    found, problems = dict[str, RunConfig](), Problems()
    for point in sweep.points:
        try:
            found[point.name] = load_recipe(sweep.recipe, assignments(sweep.values(point)))
        except ConfigError as error:
            problems.add(point, str(error).removeprefix(f"recipe {sweep.recipe}: "))
    problems.done()
    return found


@dataclass(slots=True)
class Running:
    """Which runs are under way, and what this command has to say of those that failed."""

    points: list[Point] = field(default_factory=list[Point])
    failed: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Runs:
    """The runs of a sweep in ``folder``."""

    sweep: Sweep
    configs: Mapping[str, RunConfig]
    folder: Path
    program: Sequence[str] = PROGRAM
    running: Running = field(default_factory=Running)

    @property
    def columns(self) -> Sequence[Column]:
        return COLUMNS

    def place(self, point: Point) -> Path:
        return place(self.folder, self.sweep.kind, point)

    def check(self) -> None:
        for point in self.sweep.points:
            run_dir = self.place(point)
            if (run_dir / CONFIG_FILE).exists():
                _require_same(run_dir, stored_config(run_dir), self.configs[point.name])

    def preflight(self, points: Sequence[Point]) -> None:
        from launch.preflight import preflight

        values = {"run.dir": str(self.place(points[0]).parent)}
        for point in points:
            preflight(load_recipe(self.sweep.recipe, assignments({**self.sweep.values(point), **values})))

    def outcome(self, point: Point) -> Outcome:
        run_dir = self.place(point)
        found = outcome_of(run_dir, [self.place(each) for each in self.others(point)], self.configs[point.name])
        why = self.running.failed.get(point.name)
        return found if why is None or found.why else replace(found, state=State.FAILED, why=why)

    def again(self, point: Point) -> str:
        run_dir = self.place(point)
        if (run_dir / SUMMARY_FILE).exists():
            return f"it has ended: rm -r {shlex.quote(str(run_dir))}, and the same command, to run it anew"
        return "the same command goes on with it"

    async def carry_out(self, points: Sequence[Point], at_once: int, folder: SweepFolder, heard: Listener) -> None:
        async def run(point: Point) -> None:
            log = folder.log(point)
            heard.begun(point, log)
            await self._run(point, log)
            heard.ended(point)

        with Guardian(secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="ls-"))):
            await scheduled(points, at_once, self.ready, run)

    def ready(self, point: Point) -> bool:
        """Whether nobody is just making what ``point`` could share."""
        others = self.others(point)
        return all(each not in others or has_begun(self.place(each)) for each in self.running.points)

    @cached_property
    def _alike(self) -> dict[str, str]:
        return {name: start_key(config) for name, config in self.configs.items()}

    def others(self, point: Point) -> list[Point]:
        """Those that ought to begin as ``point`` does."""
        mine = self._alike[point.name]
        return [each for each in self.sweep.points if each is not point and self._alike[each.name] == mine]

    async def _run(self, point: Point, log: Path) -> None:
        """To its end.  What it says goes into ``log``."""
        self.running.points.append(point)
        try:
            with log.open("wb") as said:
                _, code = await run_program(*self.program, *self.words(point), log=said)
        finally:
            self.running.points.remove(point)
        if self.outcome(point).state is not State.ENDED:
            self.running.failed[point.name] = last_line(log) or f"it ended with exit code {code}"

    def words(self, point: Point) -> list[str]:
        """Of the run's command."""
        run_dir = self.place(point)
        values = {"run.dir": str(run_dir.parent)}
        if (run_dir / CONFIG_FILE).exists():
            return ["--resume", run_dir.name, *_sets(values)]
        if run_dir.exists():  # made, and not yet a run
            shutil.rmtree(run_dir)
        shared = _SHARED if any(is_evaluated(self.place(each)) for each in self.others(point)) else {}
        of_all = {**self.sweep.values(point), **shared, **values}
        return ["--recipe", self.sweep.recipe, "--run-id", run_dir.name, *_sets(of_all)]


def _require_same(run_dir: Path, before: RunConfig, now: RunConfig) -> None:
    old, new = _plain(before), _plain(now)
    if other := [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]:
        key = other[0]
        raise UserError(
            f"{run_dir} was run with another {key} ({old.get(key)}, not {new.get(key)}): give what it had, --output "
            f"FOLDER to sweep elsewhere, or remove it (rm -r {shlex.quote(str(run_dir))}) to run that point anew"
        )


def _plain(config: RunConfig) -> dict[str, object]:
    return {
        f"{section}.{key}": value
        for section, keys in config_values(config).items()
        for key, value in keys.items()
        if not any(
            f"{section}.{key}".startswith(each) if each.endswith(".") else f"{section}.{key}" == each
            for each in _MAY_DIFFER
        )
    }


def _sets(values: Mapping[str, Toml]) -> list[str]:
    return [word for each in assignments(values) for word in ("--set", each)]
