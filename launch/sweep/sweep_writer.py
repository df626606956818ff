"""Writes what is known of a sweep each time that a point has ended, and tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson

from launch.run_records.reproducibility import describe_hardware
from launch.sweep.axes import SweepPoint
from launch.sweep.definition import Sweep
from launch.sweep.point_results import PointRow
from launch.sweep.point_scheduler import PointRunner
from launch.sweep.sweep_folder import PAGE_FILE, REPORT_FILE, SUMMARY_FILE, TABLE_FILE, SweepFolder
from launch.sweep.sweep_page import render_sweep_page
from launch.sweep.sweep_progress import SweepProgressReporter
from launch.sweep.sweep_table import SweepTable, table_as_csv, table_as_json, table_as_markdown
from protocol.events import JsonValue


@dataclass(slots=True)
class SweepWriter:
    sweep: Sweep
    runner: PointRunner
    folder: SweepFolder
    progress: SweepProgressReporter | None = None

    def point_started(self, point: SweepPoint, log: Path) -> None:
        if self.progress is not None:
            self.progress.point_started(point, log)

    def point_ended(self, point: SweepPoint) -> None:
        self.write_results()
        if self.progress is not None:
            self.progress.point_ended(PointRow(point, self.runner.read_result(point)))

    def write_results(self) -> SweepTable:
        rows = [PointRow(point, self.runner.read_result(point)) for point in self.sweep.points]
        table = SweepTable(self.sweep, self.runner.columns, rows, _machine(describe_hardware()))
        summary = table_as_json(table, self.runner.point_folder)
        self.folder.write(SUMMARY_FILE, orjson.dumps(summary, option=orjson.OPT_INDENT_2).decode() + "\n")
        self.folder.write(TABLE_FILE, table_as_csv(table))
        self.folder.write(PAGE_FILE, table_as_markdown(table))
        self.folder.write(REPORT_FILE, render_sweep_page(table))
        return table


def _machine(known: Mapping[str, JsonValue]) -> str:
    gpus = cast("list[str]", known["gpus"])
    memory = int(str(known["memory_bytes"])) / (1 << 30)
    parts = [known["processor"] or known["platform"], f"{known['cores']} cores", f"{memory:.0f} GiB", *gpus]
    return ", ".join(map(str, parts))
