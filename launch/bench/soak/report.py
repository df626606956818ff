"""The report of a soak, which is made from the samples alone: its table, its page of curves and its JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from launch.bench.soak.curve_file import SoakCurves, read_curves, sort_curves
from launch.bench.soak.growth import MIB, WARM_UP_SHARE, Curve, Figure, Growth, judge_curve
from launch.bench.soak.process_figures import MUST_LAST, RAY
from launch.pages.charts import MAX_SERIES, Chart, Series, render_chart_page
from launch.pages.html_document import PageHeader
from protocol.cli.output import align_columns
from protocol.events import JsonValue

PAGE_FILE = "curves.html"
_HOUR_S = 3600.0
_POINTS = 300
"""Number of points of a drawn curve, at most."""
_COLUMNS = (Figure.ANONYMOUS, Figure.RESIDENT, Figure.DESCRIPTORS, Figure.THREADS, Figure.CHILDREN)


@dataclass(frozen=True, slots=True)
class SoakReport:
    seconds: float
    judged: Sequence[Growth]
    work: Mapping[str, float]
    """Kind of work → how often it had been done when the soak ended."""
    files: Growth | None
    """Growth of the run's files."""
    restarted: Sequence[str]
    failed_uses: Sequence[str] = ()
    left_behind: Sequence[str] = ()

    @property
    def growing(self) -> Sequence[Growth]:
        """The curves of longshore's own parts that grow; those of Ray's processes are left out."""
        return [each for each in self.judged if each.grows and not each.part.startswith(RAY)]

    @property
    def growing_of_ray(self) -> Sequence[Growth]:
        return [each for each in self.judged if each.grows and each.part.startswith(RAY)]

    @property
    def failures(self) -> Sequence[str]:
        """The promises that do not hold, one line each."""
        found = [f"grows: {self.describe(each)}" for each in self.growing]
        found += [f"{part}: a process ended or began after the warm-up" for part in self.restarted]
        if not any(each.judged_s for each in self.judged if each.figure is Figure.ANONYMOUS):
            found.append(f"too few samples of {Figure.ANONYMOUS.value} to judge: give it more --minutes")
        return [*found, *(f"failed use: {line}" for line in self.failed_uses), *self.left_behind]

    @property
    def passed(self) -> bool:
        return not self.failures

    def describe(self, growth: Growth) -> str:
        """Return one line: by how much, how fast, and how much for each trajectory."""
        figure, per = growth.figure, self.per_trajectory(growth)
        by_work = f", {_amount(figure, per)} a trajectory" if per and figure.is_bytes else ""
        return (
            f"{growth.part}: {figure.value} +{_amount(figure, growth.rise)} in {growth.judged_s:.0f} s "
            f"({_amount(figure, growth.per_hour)} an hour{by_work}; the bound is {_amount(figure, growth.bound)})"
        )

    def per_trajectory(self, growth: Growth) -> float:
        """Return the growth for each trajectory that the run acknowledged; 0 without any."""
        rate = self.work.get("trajectories", 0.0) / self.seconds * _HOUR_S if self.seconds else 0.0
        return growth.per_hour / rate if rate else 0.0

    def table(self) -> Sequence[str]:
        """Return the lines of a table: by part, the level of each figure, and its growth per hour."""
        by_part: dict[str, dict[Figure, Growth]] = {}
        for each in self.judged:
            by_part.setdefault(each.part, {})[each.figure] = each
        head = ["part", *(f"{figure.value} (an hour)" for figure in _COLUMNS)]
        rows = [
            [part, *(_cell(figures.get(figure)) for figure in _COLUMNS)]
            for part, figures in sorted(by_part.items(), key=lambda item: (item[0].startswith(RAY), item[0]))
            if Figure.ANONYMOUS in figures
        ]
        others = [
            f"{part}: {figure.value} {_cell(growth)}"
            for part, figures in by_part.items()
            if Figure.ANONYMOUS not in figures
            for figure, growth in figures.items()
        ]
        return [*align_columns([head, *rows]), *others]

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "seconds": round(self.seconds, 1),
            "judged_s": round(max((each.judged_s for each in self.judged), default=0.0), 1),
            "work": {name: int(count) for name, count in self.work.items()},
            "run_files_bytes_per_hour": round(self.files.per_hour) if self.files else 0,
            "parts": [self._growth_json(each) for each in self.judged],
            "growing": [self.describe(each) for each in self.growing],
            "growing_of_ray": [self.describe(each) for each in self.growing_of_ray],
            "restarted": [*self.restarted],
            "failed_uses": [*self.failed_uses],
            "left_behind": [*self.left_behind],
            "failed": [*self.failures],
        }

    def _growth_json(self, growth: Growth) -> dict[str, JsonValue]:
        return {
            "part": growth.part,
            "figure": growth.figure.value,
            "level": round(growth.level),
            "peak": round(growth.peak),
            "per_hour": round(growth.per_hour, 2),
            "per_trajectory": round(self.per_trajectory(growth), 4),
            "bound": round(growth.bound, 1),
            "grows": growth.grows,
        }


def report_of(folder: Path, failed_uses: Sequence[str] = (), left_behind: Sequence[str] = ()) -> SoakReport:
    """Judge the samples in ``folder``, and draw them there.  Raises UserError if there are none."""
    recorded = read_curves(folder)
    seconds = max((curve.times_s[-1] for curve in recorded.values()), default=0.0)
    curves = sort_curves(recorded, seconds * WARM_UP_SHARE, MUST_LAST)
    judged = [judge_curve(curve, seconds * WARM_UP_SHARE) for curve in curves.held]
    work = {curve.part: curve.values[-1] for curve in curves.work if curve.figure is Figure.WORK}
    files = [judge_curve(curve, seconds * WARM_UP_SHARE) for curve in curves.work if curve.figure is Figure.FILES]
    report = SoakReport(seconds, judged, work, files[0] if files else None, curves.restarted, failed_uses, left_behind)
    (folder / PAGE_FILE).write_text(_page(report, curves))
    return report


def _amount(figure: Figure, value: float) -> str:
    if not figure.is_bytes:
        return f"{value:.1f}"
    return f"{value / MIB:.1f} MiB" if abs(value) >= MIB / 10 else f"{value / 1024:.2f} KiB"


def _cell(growth: Growth | None) -> str:
    if growth is None:
        return ""
    mark = "!" if growth.grows else ""
    level = f"{growth.level / MIB:.0f} MiB" if growth.figure.is_bytes else f"{growth.level:.0f}"
    rate = growth.per_hour / MIB if growth.figure.is_bytes else growth.per_hour
    return f"{level} ({rate:+.1f}){mark}"


def _page(report: SoakReport, curves: SoakCurves) -> str:
    """Return a page with a chart of each figure, for a few parts each."""
    charts: list[Chart] = []
    for figure in Figure:
        drawn = [curve for curve in (*curves.held, *curves.work) if curve.figure is figure]
        drawn.sort(key=lambda curve: (curve.part.startswith(RAY), -max(curve.values)))
        charts += [_chart(figure, drawn[at : at + MAX_SERIES]) for at in range(0, len(drawn), MAX_SERIES)]
    facts = f"<span>{report.seconds / 60:.0f} minutes, of which the first third is not judged</span>"
    verdict = "nothing grows" if report.passed else f"{len(report.failures)} findings"
    head = PageHeader("soak", "soak", facts, verdict, "good" if report.passed else "bad")
    lines = "\n".join([*report.failures, *report.table()])
    return render_chart_page(head, charts, above=[f"<pre>{escape(lines)}</pre>"], below=[])


def _chart(figure: Figure, curves: Sequence[Curve]) -> Chart:
    longest = max(curves, key=lambda curve: len(curve.times_s))
    stride = -(-len(longest.times_s) // _POINTS)
    times = longest.times_s[::stride]
    series = [Series(curve.part, _values_at(curve, times, MIB if figure.is_bytes else 1)) for curve in curves]
    note = "MiB" if figure.is_bytes else "number"
    labels = [f"{seconds / 60:.1f}" for seconds in times]
    return Chart(figure.value, note, labels, "minutes", series, from_zero=False)


def _values_at(curve: Curve, times: Sequence[float], unit: float) -> Sequence[float | None]:
    found = dict(zip(curve.times_s, curve.values, strict=True))
    return [None if (value := found.get(each)) is None else round(value / unit, 3) for each in times]
