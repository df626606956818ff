"""Pages of charts: their data, and the document in which ``static/charts.js`` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import orjson

from launch.pages.html_document import PageHeader, html_document
from launch.pages.script_bundle import bundle_scripts

MAX_SERIES = 5
"""Number of series that a chart has colours for."""
_STYLE = """
.report main { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px; padding-bottom: 40px; }
.report main > .whole { grid-column: 1 / -1; }
.chart-panel .curve-head { height: auto; flex-wrap: wrap; } .chart-panel .note { margin: 2px 0 0; }
.chart-panel .curve-head output { white-space: normal; text-align: right; } .chart-panel .plot { margin-top: 8px; }
@media (max-width: 860px) { .report main { grid-template-columns: minmax(0, 1fr); } }
"""


class Series(NamedTuple):
    """One line of a chart, or the bars of one colour."""

    label: str
    values: Sequence[float | None]
    """One value for each label of the x axis."""


class ReferenceLine(NamedTuple):
    """A level to compare with, drawn as a dashed line."""

    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    note: str
    """One line under the title that says what is shown, in which unit."""
    labels: Sequence[str]
    """Labels of the x axis."""
    x_label: str
    series: Sequence[Series]
    references: Sequence[ReferenceLine] = ()
    bars: bool = False
    share: bool = False
    """Whether values are shares, shown as percentages."""
    from_zero: bool = True


def render_chart_page(
    head: PageHeader, charts: Sequence[Chart], *, above: Sequence[str], below: Sequence[str], foot: str = ""
) -> str:
    """Return a page that needs no network: charts in two columns, between blocks of HTML ``above`` and ``below``."""
    places = [f'<section class="panel chart-panel" id="chart-{number}"></section>' for number in range(len(charts))]
    body = "\n".join([*map(_whole, above), *places, *map(_whole, below), foot])
    data = orjson.dumps({"charts": [_as_json(chart) for chart in charts]}).decode().replace("<", "\\u003c")
    return html_document(head, body, style=_STYLE, script=bundle_scripts("charts.js"), data=data, packages=("uplot",))


def _whole(block: str) -> str:
    return f'<div class="whole">{block}</div>'


def _as_json(chart: Chart) -> Mapping[str, object]:
    return asdict(chart) | {
        "series": [series._asdict() for series in chart.series],
        "references": [reference._asdict() for reference in chart.references],
    }
