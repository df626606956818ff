"""Writes what a simulation leaves in its folder: ``index.html`` and ``rows.json``."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import orjson

from launch.pages.charts import Chart, render_chart_page
from launch.pages.html_document import PageHeader, PageSection, html_section, html_table
from launch.simulate.scenario import Scenario
from launch.simulate.simulation_charts import build_charts
from launch.simulate.simulation_rows import SimulationRow
from launch.simulate.simulation_table import FAULTS_HEAD, HEAD, fault_cells, row_cells
from protocol.events import JsonValue


def write_simulation(
    folder: Path, scenario: Scenario, rows: Sequence[SimulationRow], result: dict[str, JsonValue], command: str
) -> None:
    """Write both files into an existing folder.  The same rows give the same bytes."""
    charts = build_charts(rows)
    (folder / "rows.json").write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2) + b"\n")
    (folder / "index.html").write_text(_page(scenario, rows, charts, command), encoding="utf-8")


def _page(scenario: Scenario, rows: Sequence[SimulationRow], charts: Sequence[Chart], command: str) -> str:
    note = "Lost with each failed node, at the best in-flight number of each line."
    return render_chart_page(
        PageHeader(scenario.name, "simulation", f"<span>{escape(scenario.about)}</span>", "simulated"),
        charts,
        above=[html_section(PageSection("Rows", html_table(HEAD, [row_cells(row) for row in rows])))],
        below=[html_section(PageSection("Faults", html_table(FAULTS_HEAD, fault_cells(rows)), note))],
        foot=f'<footer class="foot whole"><span>Made by <code>{escape(command)}</code>.</span></footer>',
    )
