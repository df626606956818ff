"""The command line of ``python -m launch.sweep``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction

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
from protocol.cli.arguments import AtLeastOne, CommandArguments, Flag, JsonFlag, Overrides, option
from protocol.errors import UserError


@dataclass(frozen=True, slots=True)
class SweepOptions:
    sweep: Sweep
    output: Path
    only: tuple[str, ...]
    concurrency: int
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


class SweepArguments(CommandArguments):
    """Run a training or an evaluation at every point of a grid, and print the results side by side.

    Example: longshore sweep demo --axis learner.loss=clip,gspo --axis run.seed=0,1,2
    """

    what: Positional[Annotated[str, option("SWEEP|RECIPE")]] = ""
    """A sweep or a recipe, by name or TOML file; default: demo."""
    recipe: Positional[Annotated[str, option("RECIPE")]] = ""
    """Recipe to use instead of the sweep's own."""
    axis: UseAppendAction[Annotated[tuple[str, ...], option("KEY=V,V")]] = ()
    """Key to vary; the points are the product of all axes."""
    overrides: Overrides = ()
    evaluate: Flag = False
    """Evaluate instead of training: keys without a dot are options of longshore evaluate."""
    only: UseAppendAction[Annotated[tuple[str, ...], option("GLOB")]] = ()
    """Only points whose names match; !GLOB excludes."""
    concurrency: AtLeastOne = 1
    """Concurrent points."""
    output: Annotated[Path | None, option("FOLDER")] = None
    """Folder of the sweep; default: sweeps/NAME. The same command continues it."""
    dry_run: Flag = False
    """Print all points and their settings as one JSON object, and exit."""
    as_json: JsonFlag = False


def parse_options(given: SweepArguments) -> SweepOptions:
    """Return what is to be run.  Raises UserError."""
    file = find_sweep_file(given.what) if given.what else None
    found = read_sweep_file(file) if file is not None else SweepFile(recipe=given.what or "demo")
    if given.recipe and given.what and file is None:
        raise UserError(f"{given.what} and {given.recipe} are two recipes: leave one of them out")
    changed: dict[str, object] = {}
    if given.recipe:
        changed["recipe"] = given.recipe
    if given.evaluate:
        changed["kind"] = SweepKind.EVALUATE
    found = found.model_copy(update=changed)
    sets = dict(parse_set(found.kind, word) for word in given.overrides)
    sweep = build_sweep(file.stem if file is not None else "", found, sets, [parse_axis(word) for word in given.axis])
    output = given.output if given.output is not None else Path("sweeps") / sweep.name
    return SweepOptions(sweep, output, given.only, given.concurrency, given.dry_run)
