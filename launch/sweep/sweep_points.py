"""The points of a sweep: each is a command in a process and folder of its own, and its state is what its folder says.

A finished point is not repeated, an interrupted one continues, and one that fails stops no other.  Results are written
whenever a point ends; progress goes to standard error.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import orjson
from rich.console import Console

from launch.processes.background_tasks import background_services
from launch.processes.child_process import run_command
from launch.processes.process_reaper import ProcessReaper
from launch.run_records.run_directory import RunDirectory
from launch.sweep.axes import SweepPoint
from launch.sweep.definition import Sweep
from launch.sweep.sweep_folder import REPORT_FILE, SUMMARY_FILE, TABLE_FILE, point_folder
from launch.sweep.sweep_table import (
    PointResult,
    PointState,
    ResultColumn,
    SweepTable,
    render_sweep_page,
    table_as_csv,
    table_as_json,
)
from protocol.files.filesystem import replace_file
from protocol.processes.task_groups import task_group
from protocol.run_directory.file_tail import read_newest_lines

_TAIL_BYTES = 8192
_POLL_S = 1.0
_REPORT_S = 60.0
"""Seconds between two reports on running points."""


class SweepPoints(ABC):
    columns: Sequence[ResultColumn]

    def __init__(self, sweep: Sweep, folder: Path, program: Sequence[str], console: Console) -> None:
        self.sweep, self.folder, self.program, self.console = sweep, folder, program, console
        self.running: dict[str, Path] = {}
        """Point's name → its log."""
        self.failed: dict[str, str] = {}
        """Point's name → why its command failed."""
        self._reported: dict[str, str] = {}
        """Point's name → its last line that was printed."""

    @abstractmethod
    def check_existing(self) -> None:
        """Raise UserError if a point's folder belongs to another configuration."""

    @abstractmethod
    def preflight(self, points: Sequence[SweepPoint]) -> None:
        """Raise UserError for what can be known to fail."""

    @abstractmethod
    def read_result(self, point: SweepPoint) -> PointResult:
        """Read a point's result from its folder."""

    @abstractmethod
    def retry_advice(self, point: SweepPoint) -> str:
        """Return what to do about a failed point."""

    @abstractmethod
    def command_line(self, point: SweepPoint) -> list[str]:
        """Return the arguments of the program that starts or continues a point."""

    def is_ready(self, point: SweepPoint) -> bool:
        """Return whether a point may start beside those that run."""
        del point
        return True

    def point_folder(self, point: SweepPoint) -> Path:
        return point_folder(self.folder, self.sweep.kind, point)

    async def run_points(self, points: Sequence[SweepPoint], concurrency: int, directory: RunDirectory) -> None:
        """Run or continue ``points``, ``concurrency`` at a time."""
        waiting = [*points]

        async def work() -> None:
            while waiting:
                if (point := next(filter(self.is_ready, waiting), None)) is None:
                    await asyncio.sleep(_POLL_S)
                    continue
                waiting.remove(point)
                await self._run(point, directory.logs / f"{point.name}.log")

        with ProcessReaper(secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="ls-"))):
            async with background_services(self._report_running()), task_group() as group:
                for _ in range(min(concurrency, len(points))):
                    group.create_task(work())

    async def _run(self, point: SweepPoint, log: Path) -> None:
        self.console.print(f"{point.name}: started")
        self.running[point.name] = log
        try:
            with log.open("wb") as output:
                _, code = await run_command(*self.program, *self.command_line(point), log=output)
        finally:
            del self.running[point.name]
        if self.read_result(point).state is not PointState.ENDED:
            self.failed[point.name] = read_last_line(log) or f"it ended with exit code {code}"
        table = self.write_results()
        result = next(result for each, result in table.rows if each is point)
        known = [column for column in self.columns if column.key in result.values]
        values = ", ".join(f"{column.title} {column.format_value(result.values[column.key])}" for column in known)
        detail = result.why or values
        self.console.print(f"{point.name}: {result.state.value}" + (f": {detail}" if detail else ""))

    def read_table(self) -> SweepTable:
        rows = [(point, self.read_result(point)) for point in self.sweep.points]
        return SweepTable(self.sweep, self.folder, self.columns, rows)

    def write_results(self) -> SweepTable:
        """Write summary, table and page."""
        table = self.read_table()
        summary = orjson.dumps(table_as_json(table), option=orjson.OPT_INDENT_2) + b"\n"
        replace_file(self.folder / SUMMARY_FILE, summary)
        replace_file(self.folder / TABLE_FILE, table_as_csv(table).encode())
        replace_file(self.folder / REPORT_FILE, render_sweep_page(table).encode())
        return table

    async def _report_running(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            self.print_new_lines()

    def print_new_lines(self) -> None:
        """Print the last line of each running point's log that is new."""
        for name, log in self.running.items():
            line = read_last_line(log)
            if line and line != self._reported.get(name):
                self._reported[name] = line
                self.console.print(f"{name}: {line}")


def read_last_line(log: Path) -> str:
    """Return the last line of a log that is not empty, without the mark of an error."""
    lines = (raw.decode(errors="replace").strip() for raw in read_newest_lines(log, _TAIL_BYTES))
    return next(filter(None, lines), "").removeprefix("error: ")
