"""The command line of ``python -m launch.sweep``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from launch.sweep.axes import SweepPoint, parse_axis
from launch.sweep.definition import (
    Sweep,
    SweepFile,
    SweepKind,
    build_sweep,
    find_sweep_file,
    parse_set,
    read_sweep_file,
)
from protocol.cli.numbers import integer_between
from protocol.cli.parser import CommandLineParser
from protocol.errors import UserError


@dataclass(frozen=True, slots=True)
class SweepOptions:
    sweep: Sweep
    output: Path
    only: tuple[str, ...]
    parallel: int
    dry_run: bool

    def select_points(self) -> list[SweepPoint]:
        """The points to run.  Raises UserError where ``--only`` leaves none."""
        taken = [each for each in self.only if not each.startswith("!")]
        left = [each.removeprefix("!") for each in self.only if each.startswith("!")]
        found = [
            point for point in self.sweep.points if (not taken or _matches(point, taken)) and not _matches(point, left)
        ]
        if not found:
            names = ", ".join(point.name for point in self.sweep.points)
            raise UserError(f"no point is named {' '.join(self.only)}: they are {names}")
        return found


def _matches(point: SweepPoint, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(point.name, each) for each in globs)


def build_parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.sweep",
        description="Run or evaluate at every point of some axes, and set side by side what came of it.",
        epilog="Example: python -m launch.sweep demo --axis learner.loss=clip,gspo --axis run.seed=0,1,2",
    )
    add = made.add_argument
    add("what", nargs="?", default="", metavar="SWEEP|RECIPE", help="a sweep or a recipe, by name or TOML file")
    add("--axis", action="append", default=[], metavar="KEY=V,V", help="what varies; the product of all are the points")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key of every point")
    add("--recipe", default="", metavar="NAME|PATH", help="another recipe than the sweep's")
    add("--evaluate", action="store_true", help="evaluate: keys without a dot are options of launch.evaluate")
    add("--only", action="append", default=[], metavar="GLOB", help="names of points to run now; !GLOB leaves out")
    add("--parallel", type=integer_between(1), default=1, metavar="N", help="points at a time (default: %(default)s)")
    add("--output", type=Path, metavar="FOLDER", help="default: sweeps/NAME; the same goes on where it was")
    add("--dry-run", action="store_true", help="print all points and what they set as one JSON object, and stop")
    add("--json", action="store_true", help="print the summary as one JSON object on standard output")
    return made


def parse_options(given: argparse.Namespace) -> SweepOptions:
    """Raises UserError."""
    file = find_sweep_file(given.what) if given.what else None
    found = read_sweep_file(file) if file is not None else SweepFile(recipe=given.what or "demo")
    if given.recipe and given.what and file is None:
        raise UserError(f"{given.what} and --recipe {given.recipe} are two recipes: leave one of them out")
    changed: dict[str, object] = {}
    if given.recipe:
        changed["recipe"] = given.recipe
    if given.evaluate:
        changed["kind"] = SweepKind.EVALUATE
    found = found.model_copy(update=changed)
    sets = dict(parse_set(found.kind, word) for word in given.set)
    sweep = build_sweep(file.stem if file is not None else "", found, sets, [parse_axis(word) for word in given.axis])
    output: Path | None = given.output
    return SweepOptions(
        sweep,
        output if output is not None else Path("sweeps") / sweep.name,
        tuple(given.only),
        given.parallel,
        given.dry_run,
    )
