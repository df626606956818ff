"""report.html: what a sweep came to, in one file that needs no network."""

from __future__ import annotations

from html import escape

from launch.pages.html_document import (
    PageHeader,
    PageSection,
    html_document,
    html_facts,
    html_section,
    html_table,
)
from launch.sweep.axes import format_assignments
from launch.sweep.point_results import PointState
from launch.sweep.sweep_table import SweepTable, average_rows, point_rows

_SHARED = "Runs that began with the same weights, by their checksum, share one evaluation before training."


def render_sweep_page(found: SweepTable) -> str:
    shared = any(row.result.before_of for row in found.rows)
    sections = [PageSection("Points", html_table(*point_rows(found)), _SHARED if shared else "")]
    if found.averages:
        note = "Mean ± standard deviation over the points that differ in their seed alone."
        sections.insert(0, PageSection("Over seeds", html_table(*average_rows(found)), note))
    if found.sweep.goal:
        sections.insert(0, PageSection("Goal", html_facts(_goal(found)), "for each point"))
    if failed := [row for row in found.rows if row.result.state is PointState.FAILED]:
        rows = [(row.point.name, row.result.why) for row in failed]
        sections.append(PageSection("Failed", html_table(("point", "why"), rows)))
    sections.append(PageSection("What each sets", html_table(("point", "keys"), _keys(found))))
    sections.append(PageSection("Facts", html_facts(_facts(found))))
    facts = "".join(f"<span>{escape(text)}</span>" for text in (found.sweep.about or found.sweep.recipe,))
    head = PageHeader(found.sweep.name, "sweep", facts, found.verdict, "" if found.holds else "warn")
    return html_document(head, "\n".join(html_section(section) for section in sections))


def _goal(found: SweepTable) -> list[tuple[str, str]]:
    goal, titles = found.goal, {column.key: column for column in found.columns}
    least = ", ".join(
        f"{titles[key].title} of at least {titles[key].format_value(value)}" for key, value in goal.least.items()
    )
    missed = f", missed by {', '.join(goal.missed)}" if goal.missed else ""
    return [(least, f"met by {len(goal.met)} of {len(found.rows)}{missed}")]


def _keys(found: SweepTable) -> list[tuple[str, str]]:
    common = [("every point", ", ".join(format_assignments(found.sweep.common)))] if found.sweep.common else []
    return [*common, *((row.point.name, ", ".join(format_assignments(row.point.values))) for row in found.rows)]


def _facts(found: SweepTable) -> list[tuple[str, str]]:
    seconds = sum(row.result.figures.get("seconds", 0.0) for row in found.rows)
    return [
        ("recipe", found.sweep.recipe),
        ("points", found.verdict),
        ("seconds", f"{seconds:,.0f} of all points together"),
        ("commit", ", ".join(found.commits) or "unknown"),
        ("machine", found.machine),
    ]
