"""A sweep's folder.  One process has it at a time; what its points came to is read from their own folders.

sweep.json                     what is swept, for readers
runs/SWEEP-POINT/              a training run; runs/.cache has the warm starts that they share
evaluations/SWEEP-POINT/       an evaluation
attempts/N/logs/POINT.log      what each run said
summary.json  sweep.csv  report.html
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import orjson

from launch.run_records.run_directory import RunDirectory
from launch.sweep.axes import SweepPoint
from launch.sweep.definition import Sweep, SweepKind
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.files.filesystem import replace_file

SWEEP_FILE, SUMMARY_FILE, REPORT_FILE = "sweep.json", "summary.json", "report.html"
TABLE_FILE, PAGE_FILE = "sweep.csv", "sweep.md"
_PLACES = {SweepKind.TRAIN: "runs", SweepKind.EVALUATE: "evaluations"}
_BEGUN = {"attempts", ".lock"}
"""What is there of a folder that was opened and not yet written to."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")
_MOST_CHARS = 30


def point_folder(folder: Path, kind: SweepKind, point: SweepPoint) -> Path:
    """The folder of a point, by whose name a run's containers are known: no other sweep's run has it."""
    mine = _UNSAFE.sub("_", folder.absolute().name).strip("_.")[:_MOST_CHARS] or "sweep"
    return folder.absolute() / _PLACES[kind] / f"{mine}-{point.name}"


class SweepFolder:
    """One that is open: :func:`opened`."""

    def __init__(self, directory: RunDirectory, sweep: Sweep) -> None:
        self.directory, self.path, self._kind = directory, directory.path, sweep.kind

    def point_folder(self, point: SweepPoint) -> Path:
        return point_folder(self.path, self._kind, point)

    def log_file(self, point: SweepPoint) -> Path:
        return self.directory.logs / f"{point.name}.log"

    def write(self, name: str, text: str) -> None:
        replace_file(self.path / name, text.encode())


@contextmanager
def open_sweep_folder(path: Path, sweep: Sweep) -> Generator[SweepFolder]:
    """``path``, made where it is not there.  Raises UserError where it holds something else."""
    check_sweep_folder(path, sweep)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {path}: {error.strerror}; choose another place, --output FOLDER") from error
    with RunDirectory.open(path) as directory:
        check_sweep_folder(path, sweep)  # nobody else writes into it any more
        directory.write_json(SWEEP_FILE, describe_sweep(sweep))
        yield SweepFolder(directory, sweep)


def describe_sweep(sweep: Sweep) -> dict[str, JsonValue]:
    return {
        "about": sweep.about,
        "kind": sweep.kind.value,
        "recipe": sweep.recipe,
        "common": cast("JsonValue", dict(sweep.common)),
        "goal": cast("JsonValue", dict(sweep.goal)),
        "points": [
            {
                "name": point.name,
                "axes": cast("JsonValue", dict(point.at)),
                "set": cast("JsonValue", dict(point.values)),
            }
            for point in sweep.points
        ],
    }


def check_sweep_folder(path: Path, sweep: Sweep) -> None:
    """Raises UserError unless ``sweep`` may be in ``path``.  Points may be others than before: what was run of those
    that stay is held against what they are to be, run by run."""
    if not (path / SWEEP_FILE).exists():
        if path.exists() and (not path.is_dir() or any(each.name not in _BEGUN for each in path.iterdir())):
            raise UserError(f"{path} holds something else than a sweep: choose another folder, --output FOLDER")
        return
    before = _read(path / SWEEP_FILE)
    for key, now in (("kind", sweep.kind.value), ("recipe", sweep.recipe)):
        if before.get(key) != now:
            raise UserError(
                f"{path} is a sweep of another {key} ({before.get(key)}, not {now}): choose another folder, --output "
                f"FOLDER, or remove it (rm -r {shlex.quote(str(path))}) to begin anew"
            )


def _read(file: Path) -> Mapping[str, JsonValue]:
    try:
        return cast("dict[str, JsonValue]", orjson.loads(file.read_bytes()))
    except ValueError as error:
        raise UserError(f"{file} is not readable ({error}): choose another folder, --output FOLDER") from error
