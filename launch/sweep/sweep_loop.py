"""The loop over a sweep's points: each is a command in a process and folder of its own.

A finished point is not repeated, an interrupted one continues, and one that fails stops no other.  The table is written
whenever a point ends; progress goes to standard error.

    runs/SWEEP-POINT/              a training run; runs/.cache has the warm starts that they share
    evaluations/SWEEP-POINT/       an evaluation
    starts/N/logs/POINT.log        output of each point
    summary.json  sweep.csv  report.html
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from rich.console import Console

from launch.processes.background_tasks import background_services
from launch.processes.child_process import read_last_line, run_command
from launch.processes.process_reaper import ProcessReaper
from launch.run_records.run_directory import RunDirectory
from launch.sweep.definition import Sweep, SweepPoint
from launch.sweep.evaluation_points import EvaluationPoints
from launch.sweep.sweep_table import PointState, SweepTable, render_sweep_page, table_as_csv, table_as_json
from launch.sweep.training_points import TrainingPoints
from protocol.cli.output import error_console
from protocol.files.filesystem import replace_file
from protocol.processes.task_groups import task_group

SUMMARY_FILE, TABLE_FILE, REPORT_FILE = "summary.json", "sweep.csv", "report.html"
Points: TypeAlias = TrainingPoints | EvaluationPoints


class SweepLoop:
    """One start of a sweep: runs points and knows the results of all."""

    def __init__(self, sweep: Sweep, points: Points) -> None:
        self.sweep, self.points, self.console = sweep, points, error_console()
        self.results = {point.name: points.read_result(point) for point in sweep.points}
        """Point's name → its result, which is read when the loop begins and when the point ends."""
        self.table = SweepTable(sweep, points.columns, self.results)

    async def run(self, to_run: Sequence[SweepPoint], concurrency: int, directory: RunDirectory) -> None:
        """Run or continue the points ``to_run``, ``concurrency`` at a time."""
        slots = asyncio.Semaphore(concurrency)

        async def run_in_turn(point: SweepPoint) -> None:
            async with self.points.wait_for_turn(point), slots:
                await self._run(point, directory.logs / f"{point.name}.log")
                self.write_results(directory)

        with ProcessReaper(secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="ls-"))):
            async with task_group() as group:
                for point in to_run:
                    group.create_task(run_in_turn(point))

    async def _run(self, point: SweepPoint, log: Path) -> None:
        self.console.print(f"{point.name}: started")
        try:
            with log.open("wb") as output:
                async with background_services(report_progress(point.name, log, self.console)):
                    _, code = await run_command(*self.points.command_line(point), log=output)
        finally:
            result = self.results[point.name] = self.points.read_result(point)
        if result.state is not PointState.ENDED:
            why = result.why or read_last_line(log).removeprefix("error: ") or f"it ended with exit code {code}"
            result = self.results[point.name] = replace(result, state=PointState.FAILED, why=why)
        columns = [column for column in self.points.columns if column.key in result.values]
        values = ", ".join(f"{column.title} {column.format_value(result.values[column.key])}" for column in columns)
        self.console.print(": ".join(filter(None, (point.name, result.state, result.why or values))))

    def write_results(self, directory: RunDirectory) -> None:
        """Write summary, table and page."""
        directory.write_json(SUMMARY_FILE, table_as_json(self.table))
        replace_file(directory.path / TABLE_FILE, table_as_csv(self.table).encode())
        replace_file(directory.path / REPORT_FILE, render_sweep_page(self.table).encode())


async def report_progress(name: str, log: Path, console: Console, interval_s: float = 60.0) -> None:
    """Print the last line of a running point's log whenever it is new."""
    printed = ""
    while True:
        await asyncio.sleep(interval_s)
        if (line := read_last_line(log)) != printed:
            console.print(f"{name}: {line}")
            printed = line
