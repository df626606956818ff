"""Kills processes of a whole run again and again, and accounts for every acknowledged trajectory.

Driver, scheduler, buffer, workers, sandboxes and learner are those of any run, each in its own process; only the
engine is fake (:mod:`.fake_engine`).  A run whose driver was killed is resumed (:mod:`.run_supervisor`).  Afterwards
the audit (:mod:`.trajectory_audit`) uses the files on disk (:mod:`.evidence`) and rules of its own.  The run is stopped
by an interrupt.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from launch.bench.chaos.evidence import read_evidence
from launch.bench.chaos.kill_plan import ChaosGoal, plan_kills, scale_goal
from launch.bench.chaos.kill_points import (
    AT_RANDOM,
    KILLS_FOLDER_VARIABLE,
    POINT_VICTIMS,
    Kill,
    KilledProcess,
    KillPoint,
    read_kills,
)
from launch.bench.chaos.killer import Killer
from launch.bench.chaos.run_observer import RunObserver, count_in_flight_at_kills
from launch.bench.chaos.run_supervisor import RunSupervisor
from launch.bench.chaos.trajectory_audit import ChaosAccounting, audit_trajectories
from launch.bench.coin_tasks import order_tasks, write_coin_tasks
from launch.bench.kept_runs import OutputFolder, make_output_folder, require_empty_folder
from launch.config import load_recipe
from launch.processes.background_tasks import background_services
from launch.processes.process_reaper import ProcessReaper
from launch.run.preflight import run_preflight_checks
from protocol.cli.arguments import CommandArguments, Count, JsonFlag, option
from protocol.cli.output import error_console
from protocol.errors import UserError
from protocol.events import JsonValue

RECIPE = Path(__file__).with_name("chaos.toml")
_RUN = "chaos"
_SPREAD_S = 4.0


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    goal: ChaosGoal
    seed: int
    folder: Path | None
    """Folder that keeps the run; None deletes it."""


@dataclass(frozen=True, slots=True)
class ChaosReport:
    goal: ChaosGoal
    kills_by_process: Mapping[KilledProcess, int]
    """Number of counted kills by process."""
    kills_at_point: Mapping[tuple[KillPoint, KilledProcess], int]
    accounting: ChaosAccounting

    @property
    def failures(self) -> Sequence[str]:
        """The promises that do not hold, one line each."""
        goal, accounting = self.goal, self.accounting
        found = [
            f"{process}: {self.kills_by_process[process]} kills"
            for process in AT_RANDOM
            if self.kills_by_process[process] < goal.by_process
        ]
        found += [
            f"{point}, {victim}: {self.kills_at_point[point, victim]} kills"
            for point, victim in POINT_VICTIMS
            if self.kills_at_point[point, victim] < goal.at_point
        ]
        checks = (
            (
                sum(self.kills_by_process.values()) >= goal.kills,
                f"{sum(self.kills_by_process.values())} of {goal.kills} kills",
            ),
            (
                accounting.acknowledged >= goal.trajectories,
                f"{accounting.acknowledged} of {goal.trajectories} trajectories",
            ),
            (accounting.is_balanced, "the accounting does not balance"),
            (accounting.is_clean, "something was lost, trained twice, skipped or too new"),
        )
        return [*found, *(line for held, line in checks if not held)]

    @property
    def passed(self) -> bool:
        return not self.failures

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "kills": sum(self.kills_by_process.values()),
            "kills_by": {process.value: self.kills_by_process[process] for process in KilledProcess},
            "kills_at": {
                point.value: sum(self.kills_at_point[point, victim] for victim in point.victims) for point in KillPoint
            },
            **asdict(self.accounting),
        }


class ChaosArguments(CommandArguments):
    """Kill processes of a run, and account for every trajectory."""

    kills: Annotated[int, option("N")] = 100
    """Number of kills."""
    seed: Count = 0
    """Seed of the run and of the kills."""
    output: OutputFolder = None
    as_json: JsonFlag = False


def parse_options(given: ChaosArguments) -> ChaosOptions:
    """Check the arguments.  Raises UserError."""
    return ChaosOptions(scale_goal(given.kills), given.seed, require_empty_folder(given.output))


async def measure_chaos(options: ChaosOptions) -> ChaosReport:
    """Run the benchmark.  Raises UserError if the machine cannot run it, InfraError if the run stalls."""
    say = error_console().print
    output = make_output_folder(options.folder)
    tasks = write_coin_tasks(output / "tasks")
    values = (f"run.dir='{output / 'runs'}'", f"data.path='{output / 'tasks'}'", f"run.seed={options.seed}")
    try:
        run_preflight_checks(load_recipe(str(RECIPE), values))
    except UserError:
        shutil.rmtree(output / "tasks")
        if options.folder is None:
            output.rmdir()
        raise
    say(f"run directory: {output / 'runs' / _RUN}")
    kills, observer = await _run(values, output, options)
    accounting = audit_trajectories(read_evidence(observer.run_dir), order_tasks(tasks, options.seed), options.seed)
    report = _report(options.goal, kills, observer, accounting)
    for line in report.failures:
        say(f"failed: {line}")
    if report.passed and options.folder is None:
        shutil.rmtree(output)
    return report


async def _run(values: Sequence[str], output: Path, options: ChaosOptions) -> tuple[Sequence[Kill], RunObserver]:
    """Run until the killer is done, and return the killer and the observer."""
    from launch.bench.chaos.killable_classes import RAY_CLASS_NAMES

    folder = output / "kills"
    folder.mkdir(exist_ok=True)
    os.environ[KILLS_FOLDER_VARIABLE] = str(folder)
    words = [str(RECIPE), *(word for value in values for word in ("--set", value))]
    observer = RunObserver(output / "runs" / _RUN)
    with ProcessReaper(secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="ls-"))):
        command = RunSupervisor(folder, words, _RUN)
        killer = Killer(folder, observer, command, RAY_CLASS_NAMES, options.goal, error_console().print)
        async with background_services(command.keep_running()):
            await killer.run(plan_kills(options.goal, options.seed, _SPREAD_S))
    observer.read_new_events()
    return read_kills(folder), observer


def _report(goal: ChaosGoal, kills: Sequence[Kill], observer: RunObserver, accounting: ChaosAccounting) -> ChaosReport:
    busy = count_in_flight_at_kills(observer.events, kills)
    counted = [kill for kill, number in zip(kills, busy, strict=True) if number]
    return ChaosReport(
        goal,
        Counter(kill.process for kill in counted),
        Counter((kill.point, kill.process) for kill in counted if kill.point is not None),
        accounting,
    )
