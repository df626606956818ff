"""A whole run whose processes are killed again and again, and what became of every trajectory that was acknowledged.

Driver, conductor, buffer, workers, sandboxes and learner are those of any run, each in its own process; the engine is a
fake (:mod:`.fake_engine`).  A run whose driver was killed is gone on with (:mod:`.command`).  The books are settled
from what lies on the disk in the end, by rules of the bench's own (:mod:`.evidence`, :mod:`.books`).  It ends by
stopping the run as an interrupt would.
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

from launch.bench.chaos.accounting import ChaosAccounting, account_trajectories
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
from launch.bench.coin_tasks import order_tasks, write_coin_tasks
from launch.bench.output_folder import OutputFolder, make_output_folder, require_empty_folder
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
    """Where the run stays when it is over."""


@dataclass(frozen=True, slots=True)
class ChaosReport:
    goal: ChaosGoal
    kills_by_process: Mapping[KilledProcess, int]
    """Kills that count."""
    kills_at_point: Mapping[tuple[KillPoint, KilledProcess], int]
    accounting: ChaosAccounting

    @property
    def failures(self) -> Sequence[str]:
        """What does not hold, one line each."""
        goal, books = self.goal, self.accounting
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
            (books.acknowledged >= goal.trajectories, f"{books.acknowledged} of {goal.trajectories} trajectories"),
            (books.is_balanced, "the books do not balance"),
            (books.is_clean, "something was lost, trained twice, skipped or mistaken"),
        )
        return [*found, *(line for held, line in checks if not held)]

    @property
    def holds(self) -> bool:
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
    """Processes to kill."""
    seed: Count = 0
    """Seed of the run and of the kills."""
    output: OutputFolder = None
    as_json: JsonFlag = False


def parse_options(given: ChaosArguments) -> ChaosOptions:
    """Raises UserError."""
    return ChaosOptions(scale_goal(given.kills), given.seed, require_empty_folder(given.output))


async def measure_chaos(asked: ChaosOptions) -> ChaosReport:
    """Raises UserError where the machine cannot run it, InfraError where the run stands still."""
    say = error_console().print
    place = make_output_folder(asked.folder)
    tasks = write_coin_tasks(place / "tasks")
    values = (f"run.dir='{place / 'runs'}'", f"data.path='{place / 'tasks'}'", f"run.seed={asked.seed}")
    try:
        run_preflight_checks(load_recipe(str(RECIPE), values))
    except UserError:
        shutil.rmtree(place / "tasks")
        if asked.folder is None:
            place.rmdir()
        raise
    say(f"run directory: {place / 'runs' / _RUN}")
    kills, witness = await _run(values, place, asked)
    books = account_trajectories(read_evidence(witness.run_dir), order_tasks(tasks, asked.seed), asked.seed)
    report = _report(asked.goal, kills, witness, books)
    for line in report.failures:
        say(f"failed: {line}")
    if report.holds and asked.folder is None:
        shutil.rmtree(place)
    return report


async def _run(values: Sequence[str], place: Path, asked: ChaosOptions) -> tuple[Sequence[Kill], RunObserver]:
    """Run until the killer has seen enough; whom it killed, and who saw it."""
    from launch.bench.chaos.killable_actors import RAY_CLASS_NAMES

    folder = place / "kills"
    folder.mkdir(exist_ok=True)
    os.environ[KILLS_FOLDER_VARIABLE] = str(folder)
    words = [str(RECIPE), *(word for value in values for word in ("--set", value))]
    witness = RunObserver(place / "runs" / _RUN)
    with ProcessReaper(secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="ls-"))):
        command = RunSupervisor(folder, words, _RUN)
        killer = Killer(folder, witness, command, RAY_CLASS_NAMES, asked.goal, error_console().print)
        async with background_services(command.keep_running()):
            await killer.run(plan_kills(asked.goal, asked.seed, _SPREAD_S))
    witness.read_new_events()
    return read_kills(folder), witness


def _report(goal: ChaosGoal, kills: Sequence[Kill], witness: RunObserver, books: ChaosAccounting) -> ChaosReport:
    busy = count_in_flight_at_kills(witness.events, kills)
    counted = [kill for kill, number in zip(kills, busy, strict=True) if number]
    return ChaosReport(
        goal,
        Counter(kill.process for kill in counted),
        Counter((kill.point, kill.process) for kill in counted if kill.point is not None),
        books,
    )
