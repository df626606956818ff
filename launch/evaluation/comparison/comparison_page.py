"""Renders the page of a comparison: tables, and both terminals of the tasks that changed, in one file.

The attempts shown are typical: if the other passes a task more often, one that it passed beside one that the first
failed.  Recordings are bounded, and sandbox output is data that is drawn as text nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

import orjson

from launch.evaluation.comparison.compared_evaluation import ComparedEvaluation
from launch.evaluation.comparison.comparison_tables import (
    CHANGES_HEAD,
    OVERVIEW_HEAD,
    PASS_AT_K_HEAD,
    changed_task_rows,
    format_change,
    overview_rows,
    pass_at_k_rows,
    task_rows,
)
from launch.evaluation.comparison.evaluation_comparison import EvaluationComparison, PairedEvaluation
from launch.evaluation.comparison.paired_tasks import TaskPair
from launch.pages.html_document import PageHeader, PageSection, html_document, html_section, html_table
from launch.pages.script_bundle import bundle_scripts
from protocol.evaluation import AttemptId, AttemptRecord
from protocol.events import JsonValue
from protocol.run_directory.recording_reader import read_recording

_RECORDING_BYTES = 100_000
_STYLE = """
.report main, .report .bar { max-width: 1500px; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; margin-bottom: 8px; }
.report .task h3 { margin: 22px 0 8px; }
.task .note { color: var(--ink-3); font-weight: 400; margin-left: 10px; }
@media (max-width: 900px) { .pair { grid-template-columns: minmax(0, 1fr); } }
"""


def render_evaluation_comparison(comparison: EvaluationComparison, most: int) -> str:
    """Return the page with the terminals of at most ``most`` changed tasks per evaluation."""
    pairs: list[JsonValue] = []
    sections = [
        html_section(PageSection("Evaluations", html_table(OVERVIEW_HEAD, overview_rows(comparison)), _MATRIX_NOTE))
    ]
    if comparison.notices:
        sections.append(html_section(PageSection("Compared anyway", _list(comparison.notices))))
    for each in comparison.others:
        sections += _against(comparison.first, each, most, pairs)
    heads = ("task", *(side.name for side in comparison.evaluations))
    sections.append(
        html_section(PageSection("All tasks", html_table(heads, task_rows(comparison)), "attempts that passed"))
    )
    data = orjson.dumps({"terminals": pairs}).decode().replace("<", "\\u003c")
    other, *rest = comparison.others
    name = f"{other.evaluation.name} against {comparison.first.name}{f' and {len(rest)} more' if rest else ''}"
    facts = "".join(f"<span>{escape(side.model)}</span>" for side in comparison.evaluations)
    head = PageHeader(name, "comparison", facts, _verdict(other))
    return html_document(
        head, "\n".join(sections), style=_STYLE, script=bundle_scripts("compare.js"), data=data, packages=("player",)
    )


_MATRIX_NOTE = (
    "pass@1 is over each evaluation's own tasks; the difference is paired, over the tasks that it shares with the "
    "first. Intervals: 95 %, a bootstrap over tasks."
)


def _verdict(each: PairedEvaluation) -> str:
    at_1 = each.paired.at_k.get(1)
    if at_1 is None:
        return "nothing to compare"
    significant = at_1.low > 0 or at_1.high < 0
    return f"{format_change(at_1.difference)}{'' if significant else ', within chance'}"


def _against(first: ComparedEvaluation, each: PairedEvaluation, most: int, pairs: list[JsonValue]) -> Iterator[str]:
    title = f"{each.evaluation.name} against {first.name}"
    notes = _list(each.notices) if each.notices else ""
    yield html_section(
        PageSection(title, html_table(PASS_AT_K_HEAD, pass_at_k_rows(each)) + notes, "first: " + first.name)
    )
    note = "p: probability of a difference at least as rare if both pass equally often (Fisher's exact test)"
    yield html_section(PageSection("Tasks that changed", html_table(CHANGES_HEAD, changed_task_rows(each)), note))
    shown = list(_terminals(first, each.evaluation, each.paired.changes[:most], pairs))
    if shown:
        left = len(each.paired.changes) - len(shown)
        more = f"{left} more changed tasks are not shown. " if left > 0 else ""
        yield html_section(PageSection("Terminals", "".join(shown), f"{more}Pauses are evened out for reading."))


def _terminals(
    first: ComparedEvaluation, other: ComparedEvaluation, changed: list[TaskPair], pairs: list[JsonValue]
) -> Iterator[str]:
    """Yield a placeholder for each pair of terminals, and append their data to ``pairs``."""
    for pair in changed:
        improved = pair.difference > 0
        chosen = [_chosen(first, pair.task, passed=not improved), _chosen(other, pair.task, passed=improved)]
        if not any(attempt in side.recordings for side, attempt in zip((first, other), chosen, strict=True)):
            continue
        pairs.append([_recording(side, attempt) for side, attempt in zip((first, other), chosen, strict=True)])
        tallies = f"{pair.first.passed} of {pair.first.attempts}, then {pair.other.passed} of {pair.other.attempts}"
        yield (
            f'<div class="task"><h3>{escape(pair.task)}<span class="note">{tallies}</span></h3>'
            f'<div class="pair" id="pair-{len(pairs) - 1}"></div></div>'
        )


def _chosen(side: ComparedEvaluation, task: str, *, passed: bool) -> AttemptId:
    """Return the first attempt at the task that passed (or failed), preferably a recorded one."""
    graded = _graded(side.records, task)
    return min(
        graded,
        key=lambda attempt: (graded[attempt] is not passed, attempt not in side.recordings, attempt.number),
    )


def _graded(records: Mapping[AttemptId, AttemptRecord], task: str) -> dict[AttemptId, bool]:
    return {
        attempt: record.verdict.passed
        for attempt, record in records.items()
        if attempt.task == task and record.verdict is not None
    }


def _recording(side: ComparedEvaluation, attempt: AttemptId) -> JsonValue:
    file, verdict = side.recordings.get(attempt), side.records[attempt].verdict
    chunk = read_recording(file, 0, _RECORDING_BYTES) if file else None
    events: list[JsonValue] = [[t, text] for t, text in chunk.events] if chunk else []
    return {
        "label": f"{side.name}, attempt {attempt.number}",
        "passed": verdict is not None and verdict.passed,
        "status": verdict.status.value if verdict else "",
        "reward": verdict.reward if verdict else None,
        "width": chunk.width if chunk else 80,
        "height": chunk.height if chunk else 24,
        "events": events,
    }


def _list(texts: tuple[str, ...]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"
