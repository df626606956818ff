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
from launch.config.loader import Toml
from launch.processes.child_process import run_command
from launch.processes.process_reaper import ProcessReaper
from launch.run_records.run_directory import CONFIG_FILE, SUMMARY_FILE, config_tables, load_stored_config
from launch.sweep.axes import SweepPoint, format_assignments
from launch.sweep.definition import Sweep
from launch.sweep.point_problems import PointProblems
from launch.sweep.point_results import PointResult, PointState, ResultColumn
from launch.sweep.point_scheduler import PointListener, run_scheduled
from launch.sweep.run_logs import read_last_line
from launch.sweep.run_results import COLUMNS, read_run_result
from launch.sweep.shared_starts import has_begun_training, is_evaluated, start_key
from launch.sweep.sweep_folder import SweepFolder, point_folder
from protocol.errors import UserError

PROGRAM = (sys.executable, "-m", "launch.cluster")
_MAY_DIFFER = ("run.dir", "evaluation.before_training", "monitor.")
"""Keys that may be others than those of a run that is there; a final dot means the whole section."""
_SHARED = {"evaluation.before_training": False}


def configure_runs(sweep: Sweep) -> dict[str, RunConfig]:
    """Point's name → its run's configuration.  Raises ConfigError for all that is refused at once."""
    found, problems = dict[str, RunConfig](), PointProblems()
    for point in sweep.points:
        try:
            found[point.name] = load_recipe(sweep.recipe, format_assignments(sweep.values(point)))
        except ConfigError as error:
            problems.add(point, str(error).removeprefix(f"recipe {sweep.recipe}: "))
    problems.raise_if_any()
    return found


@dataclass(slots=True)
class RunningPoints:
    """Which runs are under way, and what this command has to say of those that failed."""

    points: list[SweepPoint] = field(default_factory=list[SweepPoint])
    failed: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class TrainingPoints:
    """The runs of a sweep in ``folder``."""

    sweep: Sweep
    configs: Mapping[str, RunConfig]
    folder: Path
    program: Sequence[str] = PROGRAM
    running: RunningPoints = field(default_factory=RunningPoints)

    @property
    def columns(self) -> Sequence[ResultColumn]:
        return COLUMNS

    def point_folder(self, point: SweepPoint) -> Path:
        return point_folder(self.folder, self.sweep.kind, point)

    def check_existing(self) -> None:
        for point in self.sweep.points:
            run_dir = self.point_folder(point)
            if (run_dir / CONFIG_FILE).exists():
                _require_same(run_dir, load_stored_config(run_dir), self.configs[point.name])

    def preflight(self, points: Sequence[SweepPoint]) -> None:
        from launch.run.preflight import run_preflight_checks

        values = {"run.dir": str(self.point_folder(points[0]).parent)}
        for point in points:
            run_preflight_checks(
                load_recipe(self.sweep.recipe, format_assignments({**self.sweep.values(point), **values}))
            )

    def read_result(self, point: SweepPoint) -> PointResult:
        run_dir = self.point_folder(point)
        found = read_run_result(
            run_dir, [self.point_folder(each) for each in self.points_starting_alike(point)], self.configs[point.name]
        )
        why = self.running.failed.get(point.name)
        return found if why is None or found.why else replace(found, state=PointState.FAILED, why=why)

    def retry_advice(self, point: SweepPoint) -> str:
        run_dir = self.point_folder(point)
        if (run_dir / SUMMARY_FILE).exists():
            return f"it has ended: rm -r {shlex.quote(str(run_dir))}, and the same command, to run it anew"
        return "the same command goes on with it"

    async def run_points(
        self, points: Sequence[SweepPoint], parallel: int, folder: SweepFolder, listener: PointListener
    ) -> None:
        async def run(point: SweepPoint) -> None:
            log = folder.log_file(point)
            listener.point_started(point, log)
            await self._run(point, log)
            listener.point_ended(point)

        with ProcessReaper(secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="ls-"))):
            await run_scheduled(points, parallel, self.is_ready, run)

    def is_ready(self, point: SweepPoint) -> bool:
        """Whether nobody is just making what ``point`` could share."""
        others = self.points_starting_alike(point)
        return all(each not in others or has_begun_training(self.point_folder(each)) for each in self.running.points)

    @cached_property
    def _start_keys(self) -> dict[str, str]:
        return {name: start_key(config) for name, config in self.configs.items()}

    def points_starting_alike(self, point: SweepPoint) -> list[SweepPoint]:
        """Those that ought to begin as ``point`` does."""
        mine = self._start_keys[point.name]
        return [each for each in self.sweep.points if each is not point and self._start_keys[each.name] == mine]

    async def _run(self, point: SweepPoint, log: Path) -> None:
        """To its end.  What it says goes into ``log``."""
        self.running.points.append(point)
        try:
            with log.open("wb") as said:
                _, code = await run_command(*self.program, *self.command_line(point), log=said)
        finally:
            self.running.points.remove(point)
        if self.read_result(point).state is not PointState.ENDED:
            self.running.failed[point.name] = read_last_line(log) or f"it ended with exit code {code}"

    def command_line(self, point: SweepPoint) -> list[str]:
        """Of the run's command."""
        run_dir = self.point_folder(point)
        values = {"run.dir": str(run_dir.parent)}
        if (run_dir / CONFIG_FILE).exists():
            return ["--resume", run_dir.name, *_sets(values)]
        if run_dir.exists():  # made, and not yet a run
            shutil.rmtree(run_dir)
        shared = (
            _SHARED if any(is_evaluated(self.point_folder(each)) for each in self.points_starting_alike(point)) else {}
        )
        of_all = {**self.sweep.values(point), **shared, **values}
        return [self.sweep.recipe, "--run-id", run_dir.name, *_sets(of_all)]


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
        for section, keys in config_tables(config).items()
        for key, value in keys.items()
        if not any(
            f"{section}.{key}".startswith(each) if each.endswith(".") else f"{section}.{key}" == each
            for each in _MAY_DIFFER
        )
    }


def _sets(values: Mapping[str, Toml]) -> list[str]:
    return [word for each in format_assignments(values) for word in ("--set", each)]
