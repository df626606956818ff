"""What a simulation leaves in its folder: ``index.html``, ``simulation.png`` and ``rows.json``."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import orjson

from launch.pages.html_document import PageHeader, PageSection, html_document, html_section, html_table
from launch.simulate.plot.canvas import CanvasPoint
from launch.simulate.plot.chart import HEIGHT, WIDTH, Chart, draw_chart
from launch.simulate.plot.png import PngCanvas
from launch.simulate.plot.svg import SvgCanvas
from launch.simulate.scenario import Scenario
from launch.simulate.simulation_charts import build_charts
from launch.simulate.simulation_rows import SimulationRow
from launch.simulate.simulation_table import FAULTS_HEAD, HEAD, fault_cells, row_cells
from protocol.events import JsonValue

_MARGIN, _GAP, _HEAD, _PADDING = 28.0, 20.0, 64.0, 20.0
_COLUMNS = 2
_STYLE = """
.report main { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px; padding-bottom: 40px; }
.report main > .whole { grid-column: 1 / -1; }
.report .chart svg { width: 100%; height: auto; display: block; font-family: var(--sans); }
.report th:first-child, .report td:first-child { width: auto; }
@media (max-width: 860px) { .report main { grid-template-columns: minmax(0, 1fr); } }
"""


def write_simulation(
    folder: Path, scenario: Scenario, rows: Sequence[SimulationRow], result: dict[str, JsonValue], command: str
) -> None:
    """Write all three into a folder that is there.  The same rows give the same bytes."""
    drawn = build_charts(rows)
    (folder / "rows.json").write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2) + b"\n")
    (folder / "index.html").write_text(_page(scenario, rows, drawn, command), encoding="utf-8")
    _png(scenario, drawn, folder / "simulation.png")


def _png(scenario: Scenario, drawn: Sequence[Chart], path: Path) -> None:
    lines = -(-len(drawn) // _COLUMNS)
    panel_w, panel_h = WIDTH + 2 * _PADDING, HEIGHT + 2 * _PADDING
    width = 2 * _MARGIN + _COLUMNS * panel_w + (_COLUMNS - 1) * _GAP
    canvas = PngCanvas(width, 2 * _MARGIN + _HEAD + lines * panel_h + (lines - 1) * _GAP)
    canvas.text(CanvasPoint(_MARGIN, _MARGIN + 18), f"longshore simulate · {scenario.name}", 20, "ink", strong=True)
    canvas.text(CanvasPoint(_MARGIN, _MARGIN + 40), scenario.about, 12.5, "ink-3")
    for number, chart in enumerate(drawn):
        left = _MARGIN + (number % _COLUMNS) * (panel_w + _GAP)
        top = _MARGIN + _HEAD + (number // _COLUMNS) * (panel_h + _GAP)
        canvas.origin = CanvasPoint(left, top)
        canvas.box(0, 0, panel_w, panel_h, "panel")
        canvas.origin = CanvasPoint(left + _PADDING, top + _PADDING)
        draw_chart(chart, canvas)
    canvas.save(path)


def _page(scenario: Scenario, rows: Sequence[SimulationRow], drawn: Sequence[Chart], command: str) -> str:
    figures = "".join(f'<section class="panel chart">{_svg(chart)}</section>' for chart in drawn)
    rows_table = html_section(PageSection("Rows", html_table(HEAD, [row_cells(row) for row in rows])))
    foot = f'<footer class="foot whole"><span>Made by <code>{escape(command)}</code>.</span></footer>'
    body = f'<div class="whole">{rows_table}</div>{figures}<div class="whole">{_faults(rows)}</div>\n{foot}'
    facts = f"<span>{escape(scenario.about)}</span>"
    return html_document(PageHeader(scenario.name, "simulation", facts, "simulated"), body, style=_STYLE)


def _svg(chart: Chart) -> str:
    canvas = SvgCanvas(WIDTH, HEIGHT, chart.title)
    draw_chart(chart, canvas)
    return canvas.element()


def _faults(rows: Sequence[SimulationRow]) -> str:
    found = html_table(FAULTS_HEAD, fault_cells(rows))
    return html_section(
        PageSection("Faults", found, "What each node that died took with it, where its line trains most.")
    )
