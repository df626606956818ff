"""report.html: what a sweep came to, in one file that needs no network."""

from __future__ import annotations

from html import escape

from launch.monitor.html import Head, Section, document, facts_list, page_section, table
from launch.sweep.axes import assignments
from launch.sweep.figures import State
from launch.sweep.table import Table, average_rows, point_rows

_SHARED = "Runs that began with the same weights, by their checksum, share one evaluation before training."


def page(found: Table) -> str:
    shared = any(row.outcome.before_of for row in found.rows)
    sections = [Section("Points", table(*point_rows(found)), _SHARED if shared else "")]
    if found.averages:
        note = "Mean ± standard deviation over the points that differ in their seed alone."
        sections.insert(0, Section("Over seeds", table(*average_rows(found)), note))
    if found.sweep.goal:
        sections.insert(0, Section("Goal", facts_list(_goal(found)), "for each point"))
    if failed := [row for row in found.rows if row.outcome.state is State.FAILED]:
        rows = [(row.point.name, row.outcome.why) for row in failed]
        sections.append(Section("Failed", table(("point", "why"), rows)))
    sections.append(Section("What each sets", table(("point", "keys"), _keys(found))))
    sections.append(Section("Facts", facts_list(_facts(found))))
    facts = "".join(f"<span>{escape(text)}</span>" for text in (found.sweep.about or found.sweep.recipe,))
    head = Head(found.sweep.name, "sweep", facts, found.verdict, "" if found.holds else "warn")
    return document(head, "\n".join(page_section(section) for section in sections))


def _goal(found: Table) -> list[tuple[str, str]]:
    goal, titles = found.goal, {column.key: column for column in found.columns}
    least = ", ".join(
        f"{titles[key].title} of at least {titles[key].shown(value)}" for key, value in goal.least.items()
    )
    missed = f", missed by {', '.join(goal.missed)}" if goal.missed else ""
    return [(least, f"met by {len(goal.met)} of {len(found.rows)}{missed}")]


def _keys(found: Table) -> list[tuple[str, str]]:
    common = [("every point", ", ".join(assignments(found.sweep.common)))] if found.sweep.common else []
    return [*common, *((row.point.name, ", ".join(assignments(row.point.values))) for row in found.rows)]


def _facts(found: Table) -> list[tuple[str, str]]:
    seconds = sum(row.outcome.figures.get("seconds", 0.0) for row in found.rows)
    return [
        ("recipe", found.sweep.recipe),
        ("points", found.verdict),
        ("seconds", f"{seconds:,.0f} of all points together"),
        ("commit", ", ".join(found.commits) or "unknown"),
        ("machine", found.machine),
    ]
