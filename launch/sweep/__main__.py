"""``longshore sweep [SWEEP|RECIPE] …``: run trainings or evaluations over a grid of settings.

Exit code 0: every selected point has ended, and none missed the goal; otherwise 1.  A point that fails stops no other.
Ctrl-C stops; the same command continues and repeats no finished point.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, cast

from tyro.conf import Positional, UseAppendAction

from launch.run_records.run_directory import RunDirectory
from launch.sweep import evaluation_points, training_points
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
from launch.sweep.sweep_folder import (
    REPORT_FILE,
    SUMMARY_FILE,
    check_sweep_folder,
    open_sweep_folder,
)
from launch.sweep.sweep_points import SweepPoints
from launch.sweep.sweep_table import TO_RUN, PointState, SweepTable, average_rows, point_rows, table_as_json
from protocol.cli.arguments import AtLeastOne, CommandArguments, Flag, JsonFlag, Overrides, option
from protocol.cli.command import Command, typed_command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, align_columns, display_path, error_console, output_console
from protocol.errors import UserError
from protocol.events import JsonValue


class SweepArguments(CommandArguments):
    """Run a training or an evaluation at every point of a grid, and print the results side by side.

    A sweep is a TOML file with a recipe, common settings and axes (docs/sweep.md); `objectives` is built in.

    Example: longshore sweep demo --axis learner.loss=clip,gspo --axis run.seed=0,1,2
    """

    what: Positional[Annotated[str, option("[SWEEP|RECIPE]")]] = ""
    """Sweep (objectives, or a TOML file) or recipe; default: the recipe demo."""
    recipe: Positional[Annotated[str, option("[RECIPE]")]] = ""
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


def run(given: SweepArguments, out: JsonOutput) -> int:
    """Run the remaining points; return 0 if all selected ones have ended and none missed the goal."""
    sweep = parse_sweep(given)
    folder = given.output or Path("sweeps") / sweep.name
    check_sweep_folder(folder, sweep)
    selected = select_points(sweep, given.only)
    points = _configure(sweep, folder)
    points.check_existing()
    table = points.read_table()
    to_run = [p for p, result in table.rows if p in selected and result.state in TO_RUN]
    if given.dry_run:
        names = cast("JsonValue", [point.name for point in to_run])
        out.set_result({**table_as_json(table), "output": str(folder), "to_run": names})
        return EXIT_OK
    if to_run:
        points.preflight(to_run)
    table = _run(sweep, folder, points, to_run, given.concurrency)
    out.set_result({**table_as_json(table), "output": str(folder)})
    return EXIT_OK if table.succeeded(selected) else EXIT_FAILED


def parse_sweep(given: SweepArguments) -> Sweep:
    """Return the sweep of a command line.  Raises UserError."""
    path = find_sweep_file(given.what) if given.what else None
    file = read_sweep_file(path) if path is not None else SweepFile(recipe=given.what or "demo")
    if given.recipe and given.what and path is None:
        raise UserError(f"{given.what} and {given.recipe} are two recipes: leave one of them out")
    recipe, kind = given.recipe or file.recipe, SweepKind.EVALUATE if given.evaluate else file.kind
    file = file.model_copy(update={"recipe": recipe, "kind": kind})
    sets = dict(parse_set(kind, word) for word in given.overrides)
    return build_sweep(path.stem if path else "", file, sets, [parse_axis(word) for word in given.axis])


def select_points(sweep: Sweep, only: Sequence[str]) -> list[SweepPoint]:
    """Return the points that ``only`` selects.  Raises UserError if there are none."""
    excluded = {glob for glob in only if glob.startswith("!")}
    included = [glob for glob in only if glob not in excluded] or ["*"]

    def is_named(point: SweepPoint, globs: Iterable[str]) -> bool:
        return any(fnmatchcase(point.name, glob.removeprefix("!")) for glob in globs)

    found = [point for point in sweep.points if is_named(point, included) and not is_named(point, excluded)]
    if not found:
        names = ", ".join(point.name for point in sweep.points)
        raise UserError(f"no point is named {' '.join(only)}: they are {names}")
    return found


def _configure(sweep: Sweep, folder: Path) -> SweepPoints:
    """Configure all points.  Raises UserError for those that cannot run."""
    training = sweep.kind is SweepKind.TRAIN
    known = [column.key for column in (training_points if training else evaluation_points).COLUMNS]
    if wrong := [key for key in sweep.goal if key not in known]:
        raise UserError(f"goal: there is no metric '{wrong[0]}': the metrics are {', '.join(known)}")
    if training:
        return training_points.TrainingPoints(sweep, training_points.configure_runs(sweep), folder)
    return evaluation_points.EvaluationPoints(sweep, evaluation_points.configure_evaluations(sweep, folder), folder)


def _run(sweep: Sweep, folder: Path, points: SweepPoints, to_run: Sequence[SweepPoint], concurrency: int) -> SweepTable:
    from launch.processes.interruption import run_interruptible

    async def work(directory: RunDirectory) -> dict[str, JsonValue]:
        await points.run_points(to_run, concurrency, directory)
        return {}

    with open_sweep_folder(folder, sweep) as directory:
        error_console().print(f"{len(sweep.points)} points, {len(to_run)} to run: {display_path(directory.path)}")
        try:
            if to_run:
                asyncio.run(run_interruptible(work(directory), typed_command("sweep")))
        finally:
            table = points.write_results()
        _print_results(table, points)
        return table


def _print_results(table: SweepTable, points: SweepPoints) -> None:
    console = output_console()
    for rows in (point_rows(table), average_rows(table)):
        for line in align_columns(rows) if rows else ():
            console.print(line)
    for point, result in table.rows:
        if result.state is PointState.FAILED:
            console.print(f"failed: {point.name}: {result.why}: {points.retry_advice(point)}")
    if table.missed:
        console.print(f"the goal was missed by {', '.join(table.missed)}")
    for name, file in (("summary", SUMMARY_FILE), ("report", REPORT_FILE)):
        console.print(f"{name}: {display_path(table.folder / file)}")


COMMAND = Command("sweep", SweepArguments, run, json_options=("--json", "--dry-run"))

if __name__ == "__main__":
    sys.exit(COMMAND.main())
