"""Writes what is known of a sweep each time that a point has ended, and tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson

from launch.record import hardware
from launch.sweep.axes import Point
from launch.sweep.definition import Sweep
from launch.sweep.figures import Row
from launch.sweep.folder import PAGE_FILE, REPORT_FILE, SUMMARY_FILE, TABLE_FILE, SweepFolder
from launch.sweep.page import page
from launch.sweep.progress import Told
from launch.sweep.schedule import Carried
from launch.sweep.table import Table, as_csv, as_json, as_markdown
from protocol.events import Json


@dataclass(slots=True)
class Writer:
    sweep: Sweep
    carried: Carried
    folder: SweepFolder
    told: Told | None = None

    def begun(self, point: Point, log: Path) -> None:
        if self.told is not None:
            self.told.begun(point, log)

    def ended(self, point: Point) -> None:
        self.write()
        if self.told is not None:
            self.told.ended(Row(point, self.carried.outcome(point)))

    def write(self) -> Table:
        rows = [Row(point, self.carried.outcome(point)) for point in self.sweep.points]
        table = Table(self.sweep, self.carried.columns, rows, _machine(hardware()))
        summary = as_json(table, self.carried.place)
        self.folder.write(SUMMARY_FILE, orjson.dumps(summary, option=orjson.OPT_INDENT_2).decode() + "\n")
        self.folder.write(TABLE_FILE, as_csv(table))
        self.folder.write(PAGE_FILE, as_markdown(table))
        self.folder.write(REPORT_FILE, page(table))
        return table


def _machine(known: Mapping[str, Json]) -> str:
    gpus = cast("list[str]", known["gpus"])
    memory = int(str(known["memory_bytes"])) / (1 << 30)
    parts = [known["processor"] or known["platform"], f"{known['cores']} cores", f"{memory:.0f} GiB", *gpus]
    return ", ".join(map(str, parts))
