"""``longshore sweep [SWEEP|RECIPE] …``: run trainings or evaluations over a grid of settings.

Exit code 0: every selected point has ended, and none missed the goal; otherwise 1.  A point that fails stops no other.
Ctrl-C stops; the same command continues and repeats no finished point.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction

from launch.config.command_line import DEFAULT_RECIPE, RECIPE_WORDS
from launch.config.loader import parse_assignment
from launch.run_records.output_folder import is_output_folder, open_output_folder
from launch.run_records.run_directory import RunDirectory
from launch.sweep.definition import Sweep, SweepKind, SweepPoint, build_sweep, parse_axis, read_definition
from launch.sweep.evaluation_points import EvaluationPoints
from launch.sweep.sweep_loop import REPORT_FILE, SUMMARY_FILE, TABLE_FILE, Points, SweepLoop
from launch.sweep.sweep_table import PointState, SweepTable, average_rows, plan_rows, point_rows, table_as_json
from launch.sweep.training_points import TrainingPoints
from protocol.cli.arguments import AtLeastOne, CommandArguments, Flag, JsonFlag, Overrides, option, repeatable
from protocol.cli.command import Command, typed_command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, align_columns, display_path, error_console, output_console
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.run_directory.json_fields import read_json_object
from sandbox.tasks.task_selection import matches_patterns


class SweepArguments(CommandArguments):
    """Run a training or an evaluation at every point of a grid, and print the results side by side.

    A sweep is a TOML file with a recipe, common settings and axes (docs/sweep.md); `objectives` is built in.

    Example: longshore sweep demo --axis learner.loss=clip,gspo --axis run.seed=0,1,2
    """

    what: Positional[Annotated[str, RECIPE_WORDS, option("[SWEEP|RECIPE]")]] = DEFAULT_RECIPE
    """Sweep (objectives, or a TOML file) or recipe."""
    recipe: Positional[Annotated[str, option("[RECIPE]")]] = ""
    """Recipe to use instead of the sweep's own."""
    axis: UseAppendAction[Annotated[tuple[str, ...], repeatable("KEY=V,V")]] = ()
    """Key to vary; the points are the product of all axes."""
    overrides: Overrides = ()
    evaluate: Flag = False
    """Evaluate instead of training: keys without a dot are options of longshore evaluate."""
    only: UseAppendAction[Annotated[tuple[str, ...], repeatable("GLOB")]] = ()
    """Only points whose names match; !GLOB excludes."""
    concurrency: AtLeastOne = 1
    """Concurrent points."""
    output: Annotated[Path | None, option("FOLDER")] = None
    """Folder of the sweep; default: sweeps/NAME. The same command continues it."""
    dry_run: Flag = False
    """Print all points and their settings, and exit."""
    as_json: JsonFlag = False


def run(given: SweepArguments, out: JsonOutput) -> int:
    """Run the remaining points; return 0 if all selected ones have ended and none missed the goal."""
    sweep = parse_sweep(given)
    _check_folder(sweep)
    selected = select_points(sweep, given.only)
    points: Points = TrainingPoints(sweep) if sweep.kind is SweepKind.TRAIN else EvaluationPoints(sweep)
    _require_known_metrics(sweep, points)
    loop = SweepLoop(sweep, points)
    unfinished = (PointState.PLANNED, PointState.INTERRUPTED)
    to_run = [point for point in selected if loop.results[point.name].state in unfinished]
    if given.dry_run:
        out.set_result({**table_as_json(loop.table), "to_run": [point.name for point in to_run]})
        _print_plan(loop.table, to_run)
        return EXIT_OK
    if to_run:
        points.preflight(to_run)
    _run(loop, to_run, given.concurrency)
    out.set_result(table_as_json(loop.table))
    return EXIT_OK if loop.table.succeeded(selected) else EXIT_FAILED


def parse_sweep(given: SweepArguments) -> Sweep:
    """Return the sweep of a command line.  Raises UserError."""
    name, file = read_definition(given.what)
    if given.recipe and not name:
        raise UserError(f"{given.what} and {given.recipe} are two recipes: leave one of them out")
    kind = SweepKind.EVALUATE if given.evaluate else file.kind
    file = file.model_copy(update={"recipe": given.recipe or file.recipe, "kind": kind})
    sets, axes = dict(map(parse_assignment, given.overrides)), [*map(parse_axis, given.axis)]
    return build_sweep(file, name, sets, axes, given.output)


def _check_folder(sweep: Sweep) -> None:
    """Raise UserError if the folder has something else, or a sweep of another kind or recipe."""
    if not is_output_folder(sweep.folder, TABLE_FILE, "a sweep"):
        return
    before = read_json_object(sweep.folder / SUMMARY_FILE) or {}
    for key, now in (("kind", sweep.kind.value), ("recipe", sweep.recipe)):
        if (old := before.get(key, now)) != now:
            raise UserError(
                f"{sweep.folder} is a sweep of another {key} ({old}, not {now}): choose another folder, --output FOLDER"
            )


def select_points(sweep: Sweep, only: Sequence[str]) -> list[SweepPoint]:
    """Return the points that ``only`` selects.  Raises UserError if there are none."""
    found = [point for point in sweep.points if matches_patterns(only, point.name)]
    if not found:
        names = ", ".join(point.name for point in sweep.points)
        raise UserError(f"no point is named {' '.join(only)}: they are {names}")
    return found


def _require_known_metrics(sweep: Sweep, points: Points) -> None:
    known = [column.key for column in points.columns]
    if wrong := [key for key in sweep.goal if key not in known]:
        raise UserError(f"goal: there is no metric '{wrong[0]}': the metrics are {', '.join(known)}")


def _run(loop: SweepLoop, to_run: Sequence[SweepPoint], concurrency: int) -> None:
    from launch.processes.interruption import run_interruptible

    async def work(directory: RunDirectory) -> dict[str, JsonValue]:
        await loop.run(to_run, concurrency, directory)
        return {}

    sweep = loop.sweep
    with open_output_folder(sweep.folder, lambda: _check_folder(sweep)) as directory:
        error_console().print(f"{len(sweep.points)} points, {len(to_run)} to run: {display_path(sweep.folder)}")
        loop.write_results(directory)
        try:
            if to_run:
                asyncio.run(run_interruptible(work(directory), typed_command("sweep")))
        finally:
            loop.write_results(directory)
        _print_results(loop.table)


def _print_plan(table: SweepTable, to_run: Sequence[SweepPoint]) -> None:
    console = output_console()
    for line in align_columns(plan_rows(table), text_columns=3):
        console.print(line)
    console.print(f"{len(table.rows)} points, {len(to_run)} to run: {display_path(table.sweep.folder)}")


def _print_results(table: SweepTable) -> None:
    console = output_console()
    for rows in (point_rows(table), average_rows(table)):
        for line in align_columns(rows) if rows else ():
            console.print(line)
    for point, result in table.rows:
        if result.state is PointState.FAILED:
            console.print(f"failed: {point.name}: {result.why}: {result.advice}")
    if table.missed:
        console.print(f"the goal was missed by {', '.join(table.missed)}")
    for name, file in (("summary", SUMMARY_FILE), ("report", REPORT_FILE)):
        console.print(f"{name}: {display_path(table.sweep.folder / file)}")


COMMAND = Command("sweep", SweepArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
