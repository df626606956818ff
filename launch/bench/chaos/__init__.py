"""A whole run whose processes are killed again and again, and what became of every trajectory that was acknowledged.

Driver, conductor, buffer, workers, sandboxes and learner are those of any run, each in its own process; the engine is a
fake (:mod:`.fake_engine`).  The books are settled from what lies on the disk in the end, by code that shares nothing
with what was on trial (:mod:`.evidence`, :mod:`.books`).  It ends by stopping the run as an interrupt would.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from launch.bench.chaos.books import Books, settle
from launch.bench.chaos.evidence import read_evidence
from launch.bench.chaos.killer import Killer
from launch.bench.chaos.plan import Goal, goal_of, make_plan
from launch.bench.chaos.points import FOLDER, Kill, Point, Process, read_kills
from launch.bench.chaos.tasks import listed, write_tasks
from launch.bench.chaos.witness import Witness, in_flight_at
from launch.config import RunConfig, load_recipe
from launch.guardian import TOKEN, Guardian
from launch.preflight import preflight
from launch.record import base_image, write_record
from launch.rundir import RunDirectory
from launch.structured import beside
from protocol.cli.output import error_console
from protocol.errors import InfraError, UserError
from protocol.events import Json

RECIPE = Path(__file__).with_name("chaos.toml")
_RUN = "chaos"
_SPREAD_S = 4.0


@dataclass(frozen=True, slots=True)
class Options:
    goal: Goal
    seed: int
    folder: Path | None
    """Where the run stays when it is over."""


@dataclass(frozen=True, slots=True)
class Report:
    goal: Goal
    by: Mapping[Process, int]
    """Kills that count."""
    at: Mapping[Point, int]
    books: Books

    @property
    def failures(self) -> Sequence[str]:
        """What does not hold, one line each."""
        goal, books = self.goal, self.books
        found = [f"{process}: {self.by[process]} kills" for process in Process if self.by[process] < goal.by_process]
        found += [f"{point}: {self.at[point]} kills" for point in Point if self.at[point] < goal.at_point]
        checks = (
            (sum(self.by.values()) >= goal.kills, f"{sum(self.by.values())} of {goal.kills} kills"),
            (books.acked >= goal.trajectories, f"{books.acked} of {goal.trajectories} trajectories"),
            (books.balanced, "the books do not balance"),
            (books.clean, "something was lost, trained twice, skipped or mistaken"),
        )
        return [*found, *(line for held, line in checks if not held)]

    @property
    def holds(self) -> bool:
        return not self.failures

    def as_json(self) -> dict[str, Json]:
        return {
            "kills": sum(self.by.values()),
            "kills_by": {process.value: self.by[process] for process in Process},
            "kills_at": {point.value: self.at[point] for point in Point},
            **asdict(self.books),
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="processes to kill (default 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the run and of the dice (default 0)")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the run stays (default: removed if all held)")


def options(given: argparse.Namespace) -> Options:
    """Raises UserError."""
    if given.seed < 0:
        raise UserError(f"--seed {given.seed} is below 0")
    folder: Path | None = given.folder
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: remove what is in it, or name another --folder")
    return Options(goal_of(given.kills), given.seed, folder)


async def measure(asked: Options) -> Report:
    """Raises UserError where the machine cannot run it, InfraError where the run stands still."""
    say = error_console().print
    place = _place(asked.folder)
    tasks = write_tasks(place / "tasks")
    values = (f"run.dir='{place / 'runs'}'", f"data.path='{place / 'tasks'}'", f"run.seed={asked.seed}")
    config = load_recipe(str(RECIPE), values)
    try:
        preflight(config)
    except UserError:
        shutil.rmtree(place / "tasks")
        if asked.folder is None:
            place.rmdir()
        raise
    say(f"run directory: {place / 'runs' / _RUN}")
    kills, witness = await _run(config, place, asked)
    books = settle(read_evidence(witness.run_dir), listed(tasks, asked.seed), asked.seed)
    report = _report(asked.goal, kills, witness, books)
    for line in report.failures:
        say(f"failed: {line}")
    if report.holds and asked.folder is None:
        shutil.rmtree(place)
    return report


async def _run(config: RunConfig, place: Path, asked: Options) -> tuple[Sequence[Kill], Witness]:
    """Run until the killer has seen enough; whom it killed, and who saw it."""
    from launch.bench.chaos.victims import CLASSES, CREW
    from launch.driver import Driver

    folder, temporary = place / "kills", Path(tempfile.mkdtemp(prefix="ls-"))
    folder.mkdir(exist_ok=True)
    os.environ[FOLDER] = str(folder)
    console = error_console()
    with RunDirectory.create(config.run.dir, config.run.name, _RUN) as directory:
        write_record(directory, config, base_image(config))
        sweep = (sys.executable, "-m", "sandbox.sweep", directory.run_id)
        witness = Witness(directory.path)
        with Guardian(secrets.token_hex(16), temporary, sweep):
            killer = Killer(folder, witness, os.environ[TOKEN], CLASSES, asked.goal, console.print)
            driver = Driver(config, directory, temporary, console, crew=CREW)
            async with beside(_ended(driver.run(resume=False))):
                await killer.run(make_plan(asked.goal, asked.seed, _SPREAD_S))
    witness.look()
    return read_kills(folder), witness


async def _ended(run: Coroutine[object, object, object]) -> None:
    await run
    raise InfraError("the run came to its end before all was killed that was to be")


def _report(goal: Goal, kills: Sequence[Kill], witness: Witness, books: Books) -> Report:
    busy = in_flight_at(witness.events, [kill.t for kill in kills])
    counted = [kill for kill, number in zip(kills, busy, strict=True) if number]
    return Report(
        goal,
        Counter(kill.process for kill in counted),
        Counter(kill.point for kill in counted if kill.point is not None),
        books,
    )


def _place(folder: Path | None) -> Path:
    """Where everything is written."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="ls-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()
