"""A whole run whose processes are killed again and again, and what became of every trajectory that was acknowledged.

Driver, conductor, buffer, workers, sandboxes and learner are those of any run, each in its own process; the engine is a
fake (:mod:`.fake_engine`).  A run whose driver was killed is gone on with (:mod:`.command`).  The books are settled
from what lies on the disk in the end, by rules of the bench's own (:mod:`.evidence`, :mod:`.books`).  It ends by
stopping the run as an interrupt would.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from launch.bench.chaos.books import Books, settle
from launch.bench.chaos.command import Command
from launch.bench.chaos.evidence import read_evidence
from launch.bench.chaos.killer import Killer
from launch.bench.chaos.plan import Goal, goal_of, make_plan
from launch.bench.chaos.points import AT_RANDOM, FOLDER, PLACES, Kill, Point, Process, read_kills
from launch.bench.chaos.tasks import listed, write_tasks
from launch.bench.chaos.witness import Witness, in_flight_at
from launch.bench.place import add_folder, empty_folder, place_in
from launch.config import load_recipe
from launch.guardian import Guardian
from launch.preflight import preflight
from launch.structured import beside
from protocol.cli.output import error_console
from protocol.errors import UserError
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
    at: Mapping[tuple[Point, Process], int]
    books: Books

    @property
    def failures(self) -> Sequence[str]:
        """What does not hold, one line each."""
        goal, books = self.goal, self.books
        found = [f"{process}: {self.by[process]} kills" for process in AT_RANDOM if self.by[process] < goal.by_process]
        found += [
            f"{point}, {victim}: {self.at[point, victim]} kills"
            for point, victim in PLACES
            if self.at[point, victim] < goal.at_point
        ]
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
            "kills_at": {point.value: sum(self.at[point, victim] for victim in point.victims) for point in Point},
            **asdict(self.books),
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="processes to kill (default 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the run and of the dice (default 0)")
    add_folder(parser)


def options(given: argparse.Namespace) -> Options:
    """Raises UserError."""
    if given.seed < 0:
        raise UserError(f"--seed {given.seed} is below 0")
    return Options(goal_of(given.kills), given.seed, empty_folder(given.folder))


async def measure(asked: Options) -> Report:
    """Raises UserError where the machine cannot run it, InfraError where the run stands still."""
    say = error_console().print
    place = place_in(asked.folder)
    tasks = write_tasks(place / "tasks")
    values = (f"run.dir='{place / 'runs'}'", f"data.path='{place / 'tasks'}'", f"run.seed={asked.seed}")
    try:
        preflight(load_recipe(str(RECIPE), values))
    except UserError:
        shutil.rmtree(place / "tasks")
        if asked.folder is None:
            place.rmdir()
        raise
    say(f"run directory: {place / 'runs' / _RUN}")
    kills, witness = await _run(values, place, asked)
    books = settle(read_evidence(witness.run_dir), listed(tasks, asked.seed), asked.seed)
    report = _report(asked.goal, kills, witness, books)
    for line in report.failures:
        say(f"failed: {line}")
    if report.holds and asked.folder is None:
        shutil.rmtree(place)
    return report


async def _run(values: Sequence[str], place: Path, asked: Options) -> tuple[Sequence[Kill], Witness]:
    """Run until the killer has seen enough; whom it killed, and who saw it."""
    from launch.bench.chaos.victims import CLASSES

    folder = place / "kills"
    folder.mkdir(exist_ok=True)
    os.environ[FOLDER] = str(folder)
    words = ["--recipe", str(RECIPE), *(word for value in values for word in ("--set", value))]
    witness = Witness(place / "runs" / _RUN)
    with Guardian(secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="ls-"))):
        command = Command(folder, words, _RUN)
        killer = Killer(folder, witness, command, CLASSES, asked.goal, error_console().print)
        async with beside(command.keep()):
            await killer.run(make_plan(asked.goal, asked.seed, _SPREAD_S))
    witness.look()
    return read_kills(folder), witness


def _report(goal: Goal, kills: Sequence[Kill], witness: Witness, books: Books) -> Report:
    busy = in_flight_at(witness.events, kills)
    counted = [kill for kill, number in zip(kills, busy, strict=True) if number]
    return Report(
        goal,
        Counter(kill.process for kill in counted),
        Counter((kill.point, kill.process) for kill in counted if kill.point is not None),
        books,
    )
