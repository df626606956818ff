"""``python -m launch.sweep SWEEP|RECIPE …``: run trainings or evaluations over a grid of settings.

Exit code 0: every point that was asked for has ended, and none missed the goal; 1: some did not, or did.  One that
fails stops no other.  Ctrl-C stops; the same command goes on, and runs nothing again that has ended.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from typing import cast

from rich.console import Console

from launch.sweep import evaluation_points, run_results, training_points
from launch.sweep.arguments import SweepArguments, SweepOptions, parse_options
from launch.sweep.axes import SweepPoint
from launch.sweep.definition import SweepKind
from launch.sweep.point_results import PointState
from launch.sweep.point_scheduler import PointRunner
from launch.sweep.sweep_folder import REPORT_FILE, SUMMARY_FILE, SweepFolder, check_sweep_folder, open_sweep_folder
from launch.sweep.sweep_progress import SweepProgressReporter
from launch.sweep.sweep_table import SweepTable, align_columns, average_rows, point_rows, table_as_json
from launch.sweep.sweep_writer import SweepWriter
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, display_path, error_console, output_console
from protocol.errors import UserError
from protocol.events import JsonValue

_TO_RUN = {PointState.PLANNED, PointState.BROKEN_OFF}


def run(given: SweepArguments, out: JsonOutput) -> int:
    """Run the points that are left, and return 0 where every point has ended and none missed the goal."""
    wanted = parse_options(given)
    check_sweep_folder(wanted.output, wanted.sweep)
    chosen = wanted.select_points()
    carried = _carried(wanted)
    carried.check_existing()
    to_run = [point for point in chosen if carried.read_result(point).state in _TO_RUN]
    if wanted.dry_run:
        out.set_result(_would_run(wanted, carried, to_run))
        return EXIT_OK
    if to_run:
        carried.preflight(to_run)
    table = _run(wanted, carried, to_run)
    out.set_result({**table_as_json(table, carried.point_folder), "output": str(wanted.output)})
    names = {point.name for point in chosen}
    ended = all(row.result.state is PointState.ENDED for row in table.rows if row.point.name in names)
    return EXIT_OK if ended and not names & set(table.goal.missed) else EXIT_FAILED


def _carried(wanted: SweepOptions) -> PointRunner:
    """Raises UserError for all points that cannot be."""
    sweep, folder = wanted.sweep, wanted.output
    known = [column.key for column in (run_results if sweep.kind is SweepKind.TRAIN else evaluation_points).COLUMNS]
    if wrong := [key for key in sweep.goal if key not in known]:
        raise UserError(f"goal: there is no figure '{wrong[0]}': the figures are {', '.join(known)}")
    if sweep.kind is SweepKind.TRAIN:
        return training_points.TrainingPoints(sweep, training_points.configure_runs(sweep), folder)
    return evaluation_points.EvaluationPoints(sweep, evaluation_points.configure_evaluations(sweep, folder), folder)


def _would_run(wanted: SweepOptions, carried: PointRunner, to_run: Sequence[SweepPoint]) -> dict[str, JsonValue]:
    sweep = wanted.sweep
    return {
        "sweep": sweep.name,
        "kind": sweep.kind.value,
        "recipe": sweep.recipe,
        "output": str(wanted.output),
        "common": cast("JsonValue", dict(sweep.common)),
        "points": [
            {
                "name": point.name,
                "axes": cast("JsonValue", dict(point.at)),
                "set": cast("JsonValue", dict(point.values)),
                "state": carried.read_result(point).state.value,
                "folder": str(carried.point_folder(point)),
            }
            for point in sweep.points
        ],
        "to_run": [point.name for point in to_run],
    }


def _run(wanted: SweepOptions, carried: PointRunner, to_run: Sequence[SweepPoint]) -> SweepTable:
    from launch.processes.interruption import run_interruptible

    console = error_console()
    with open_sweep_folder(wanted.output, wanted.sweep) as folder:
        console.print(f"{len(wanted.sweep.points)} points, {len(to_run)} to run: {display_path(folder.path)}")
        writer = SweepWriter(wanted.sweep, carried, folder)
        try:
            if to_run:
                again = f"the same command: {shlex.join(['python', *sys.orig_argv[1:]])}"
                asyncio.run(run_interruptible(_work(wanted, writer, to_run, console), again))
        finally:
            table = writer.write_results()
        _conclude(table, carried, folder, output_console())
        return table


async def _work(
    wanted: SweepOptions, writer: SweepWriter, to_run: Sequence[SweepPoint], console: Console
) -> dict[str, JsonValue]:
    from launch.processes.background_tasks import background_services

    table = writer.write_results()
    writer.progress = told = SweepProgressReporter(console, table.rows, table.columns)
    async with background_services(told.report_running()):
        await writer.runner.run_points(to_run, wanted.concurrency, writer.folder, writer)
    return {}


def _conclude(table: SweepTable, carried: PointRunner, folder: SweepFolder, console: Console) -> None:
    for head, rows in (point_rows(table), average_rows(table)):
        for line in align_columns(head, rows) if rows else ():
            console.print(line)
    for row in table.rows:
        if row.result.state is PointState.FAILED:
            console.print(f"failed: {row.point.name}: {row.result.why}: {carried.retry_advice(row.point)}")
    if table.goal.missed:
        console.print(f"the goal was missed by {', '.join(table.goal.missed)}")
    console.print(
        f"summary: {display_path(folder.path / SUMMARY_FILE)}\nreport:  {display_path(folder.path / REPORT_FILE)}"
    )


COMMAND = Command("launch.sweep", SweepArguments, run, json_options=("--json", "--dry-run"))

if __name__ == "__main__":
    sys.exit(COMMAND.main())
