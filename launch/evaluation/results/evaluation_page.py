"""Renders report.html, the results of an evaluation in one file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from launch.evaluation.results.evaluation_summary import EvaluationSummary
from launch.evaluation.scores import tally_tasks
from launch.pages.html_document import (
    PageHeader,
    PageSection,
    html_document,
    html_facts,
    html_section,
    html_table,
)
from protocol.cli.formatting import format_percent
from protocol.evaluation import AttemptId, AttemptRecord

_MOST_FAILURES = 200


def render_evaluation_page(
    summary: EvaluationSummary, plan: Sequence[AttemptId], done: Mapping[AttemptId, AttemptRecord]
) -> str:
    records = [done[key] for key in plan if key in done]
    by_task = {task: [record for record in records if record.task == task] for task in {key.task for key in plan}}
    sections = [
        PageSection("pass@k", _pass_at_k_table(summary), "unbiased; the interval is a bootstrap over tasks, 95 %"),
        PageSection("Families", _family_table(summary), "families of tasks, or the data sources of rows"),
        PageSection("Facts", html_facts(_facts(summary))),
        PageSection(
            "Tasks", html_table(("task", "passed", "graded", "errors", "turns", "tokens", "seconds"), _tasks(by_task))
        ),
    ]
    if warning := summary.tool_call_warning:
        sections.insert(0, PageSection("Tool calls", f"<p>{escape(warning)}</p>"))
    if failures := [record for record in records if record.failure is not None]:
        note = "Infrastructure failures, not outcomes of the policy: --retry-errors repeats attempts without a verdict."
        sections.append(PageSection("Errors", _failures(failures[:_MOST_FAILURES]), note))
    verdict = "complete" if summary.complete else f"{summary.total_trajs} of {summary.planned}"
    facts = "".join(f"<span>{escape(text)}</span>" for text in (summary.model_type, summary.dataset))
    head = PageHeader(
        summary.trial_name, "evaluation", facts, verdict, "" if summary.complete and not summary.error_count else "warn"
    )
    return html_document(head, "\n".join(html_section(section) for section in sections))


def _pass_at_k_table(summary: EvaluationSummary) -> str:
    rows = [
        (f"pass@{k}", format_percent(at.value), f"{100 * at.low:.1f} to {100 * at.high:.1f} %", str(at.tasks))
        for k, at in summary.pass_at_k.items()
    ]
    return html_table(("", "value", "interval", "tasks"), rows)


def _family_table(summary: EvaluationSummary) -> str:
    rows = [
        (
            family or "–",
            str(each.tasks),
            str(each.graded),
            format_percent(each.pass_ratio),
            format_percent(each.tests_passed),
            f"{each.reward:.3f}",
        )
        for family, each in summary.families.items()
    ]
    return html_table(("family", "tasks", "graded", "passed", "tests passed", "reward"), rows)


def _facts(summary: EvaluationSummary) -> list[tuple[str, str]]:
    reward, ratio = summary.reward, summary.pass_ratio
    errors = ", ".join(f"{count} {stage}" for stage, count in summary.errors_by_stage.items() if count)
    return [
        ("attempts", f"{summary.total_trajs} of {summary.planned}"),
        ("passed", f"{summary.pass_count} of {summary.graded}" + (f" ({ratio:.1%})" if ratio is not None else "")),
        ("errors", errors or "none"),
        ("reward", f"{reward.mean:.3f} ± {reward.std:.3f} ({reward.min:g} to {reward.max:g})" if reward else "none"),
        ("tokens", f"{summary.tokens.prompt:,} read, {summary.tokens.completion:,} sampled"),
        ("seconds", f"{summary.seconds:,.0f} of all attempts together"),
        ("agent", f"{summary.agent.agent}, at most {summary.agent.max_iteration} turns"),
        ("model", f"{summary.model_type} ({summary.model_platform})"),
    ]


def _tasks(by_task: Mapping[str, Sequence[AttemptRecord]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for task, records in sorted(by_task.items()):
        tally = tally_tasks(records).get(task)
        tokens = sum(record.usage.prompt_tokens + record.usage.completion_tokens for record in records)
        rows.append(
            (
                task,
                str(tally.passed if tally else 0),
                str(tally.attempts if tally else 0),
                str(sum(record.verdict is None for record in records)),
                str(sum(record.usage.turns for record in records)),
                f"{tokens:,}",
                f"{sum(record.seconds for record in records):.1f}",
            )
        )
    return rows


def _failures(failures: Sequence[AttemptRecord]) -> str:
    rows = [
        (record.attempt_id.uid, each.stage, each.kind, each.message) for record in failures if (each := record.failure)
    ]
    return html_table(("attempt", "stage", "error", "message"), rows)
