"""The folder of a sweep, for one process at a time; the results are read from its points' own folders.

sweep.json                     the definition
runs/SWEEP-POINT/              a training run; runs/.cache has the warm starts that they share
evaluations/SWEEP-POINT/       an evaluation
attempts/N/logs/POINT.log      output of each point
summary.json  sweep.csv  report.html
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from launch.run_records.output_folder import is_output_folder, open_output_folder
from launch.run_records.run_directory import RunDirectory
from launch.sweep.axes import SweepPoint
from launch.sweep.definition import Sweep, SweepKind
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.run_directory.json_fields import read_json_object

SWEEP_FILE, SUMMARY_FILE, TABLE_FILE, REPORT_FILE = "sweep.json", "summary.json", "sweep.csv", "report.html"
_SUBFOLDERS = {SweepKind.TRAIN: "runs", SweepKind.EVALUATE: "evaluations"}
_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")
_MAX_NAME_CHARS = 30


def point_folder(folder: Path, kind: SweepKind, point: SweepPoint) -> Path:
    """Return a point's folder; its name, which also names a run's containers, includes the sweep's."""
    sweep = _UNSAFE.sub("_", folder.absolute().name).strip("_.")[:_MAX_NAME_CHARS] or "sweep"
    return folder.absolute() / _SUBFOLDERS[kind] / f"{sweep}-{point.name}"


@contextmanager
def open_sweep_folder(path: Path, sweep: Sweep) -> Generator[RunDirectory]:
    """Open ``path``, creating it if needed.  Raises UserError if it holds something else."""
    with open_output_folder(path, lambda: check_sweep_folder(path, sweep)) as directory:
        directory.write_json(SWEEP_FILE, describe_sweep(sweep))
        yield directory


def describe_sweep(sweep: Sweep) -> dict[str, JsonValue]:
    return {
        "sweep": sweep.name,
        "about": sweep.about,
        "kind": sweep.kind.value,
        "recipe": sweep.recipe,
        "common": cast("JsonValue", dict(sweep.common)),
        "goal": cast("JsonValue", dict(sweep.goal)),
        "points": [describe_point(point) for point in sweep.points],
    }


def describe_point(point: SweepPoint) -> dict[str, JsonValue]:
    axes, values = cast("JsonValue", dict(point.at)), cast("JsonValue", dict(point.values))
    return {"name": point.name, "axes": axes, "set": values}


def check_sweep_folder(path: Path, sweep: Sweep) -> None:
    """Raise UserError unless ``sweep`` may use ``path``.  Its points may differ from before."""
    if not is_output_folder(path, SWEEP_FILE, "a sweep"):
        return
    before = read_json_object(path / SWEEP_FILE) or {}
    for key, now in (("kind", sweep.kind.value), ("recipe", sweep.recipe)):
        if before.get(key) != now:
            raise UserError(
                f"{path} is a sweep of another {key} ({before.get(key)}, not {now}): choose another folder, --output "
                f"FOLDER, or remove it (rm -r {shlex.quote(str(path))}) to start over"
            )
