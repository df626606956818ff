"""The file of all samples, which is written as they are taken: a soak that is under way, or was cut short, can be
judged too."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from launch.bench.soak.growth import Curve, Figure
from protocol.errors import UserError

CURVES_FILE = "curves.csv"
_HEAD = ("seconds", "part", "process", "figure", "value")


class CurveKey(NamedTuple):
    part: str
    """Name of the part: ``worker``, ``Ray: raylet``, ``sandboxes``."""
    process: str
    """``PID.START``; empty for what is no process."""
    figure: Figure


Sample = Mapping[CurveKey, float]


@dataclass(slots=True)
class RecordedCurve:
    times_s: list[float] = field(default_factory=list[float])
    values: list[float] = field(default_factory=list[float])


class CurveFile:
    """Appends samples to a folder's file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CURVES_FILE
        with self._path.open("w", newline="") as file:
            csv.writer(file).writerow(_HEAD)

    def append(self, seconds: float, sample: Sample) -> None:
        """Append one value of each curve, at ``seconds`` since the soak began."""
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerows(
                (f"{seconds:.1f}", key.part, key.process, key.figure.value, f"{value:.0f}")
                for key, value in sample.items()
            )


def read_curves(folder: Path) -> Mapping[CurveKey, RecordedCurve]:
    """Return the curves of a folder; a line that is not complete yet is left out.  Raises UserError without a file."""
    path = folder / CURVES_FILE
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(
            f"{folder} has no {CURVES_FILE} of a soak ({error.strerror}): name the --output of one"
        ) from error
    found: dict[CurveKey, RecordedCurve] = {}
    for row in csv.reader(text[: text.rfind("\n") + 1].splitlines()[1:]):
        curve = found.setdefault(CurveKey(row[1], row[2], Figure(row[3])), RecordedCurve())
        curve.times_s.append(float(row[0]))
        curve.values.append(float(row[4]))
    return found


@dataclass(frozen=True, slots=True)
class SoakCurves:
    """The curves of a soak, divided into those that must not grow and those that grow with what is done."""

    held: Sequence[Curve]
    """The figures of each long-lived process, and of all sandboxes together."""
    work: Sequence[Curve]
    """The work that was done, and the files of the run."""
    restarted: Sequence[str]
    """Parts of which a process began after the warm-up, or ended before the soak did."""


def sort_curves(recorded: Mapping[CurveKey, RecordedCurve], warm_up_s: float, named: Iterable[str]) -> SoakCurves:
    """Sort curves by their parts.

    A process that was seen before the warm-up ended and at the last sample is long-lived; ``named`` are the parts of
    which every process has to be.  Parts with several processes are numbered.
    """
    end_s = max((curve.times_s[-1] for curve in recorded.values()), default=0.0)
    lasting: dict[str, list[str]] = {}
    broken: dict[str, None] = {}
    must_last = frozenset(named)
    for key, curve in recorded.items():
        if key.figure is Figure.ANONYMOUS:
            if curve.times_s[0] <= warm_up_s and curve.times_s[-1] == end_s:
                lasting.setdefault(key.part, []).append(key.process)
            elif key.part in must_last:
                broken[key.part] = None
    held, work = list[Curve](), list[Curve]()
    for key, curve in recorded.items():
        siblings = lasting.get(key.part, [])
        if key.process and key.process not in siblings:
            continue
        number = siblings.index(key.process) + 1 if len(siblings) > 1 else 0
        part = f"{key.part} {number}" if number else key.part
        sorted_curve = Curve(part, key.figure, curve.times_s, curve.values)
        (work if key.figure.is_work else held).append(sorted_curve)
    return SoakCurves(held, work, [*broken])
