"""Renders results.csv, a line per attempt, and evaluated_tasks.csv, a line per task.  Pure.

The columns of results.csv begin with SETA's (utils/results.py), in its order; ours come after them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from protocol.evaluation import AttemptId, AttemptRecord

CsvCell = str | int | float | bool | None

COLUMNS = (
    *("task_name", "traj_i", "uid", "reward", "error", "error_stage", "error_message", "iteration_count"),
    *("termination_reason", "total_tool_calls", "max_parallel_tool_call", "parse_error_count"),
    *("prompt_tokens", "completion_tokens", "total_tokens"),
    *("passed", "pass_ratio", "seconds"),
)


def render_results_csv(plan: Iterable[AttemptId], done: Mapping[AttemptId, AttemptRecord]) -> str:
    """Return the attempts that were made, task by task."""
    return render_csv(COLUMNS, (_row(done[key]) for key in sorted(plan) if key in done))


def _row(record: AttemptRecord) -> Sequence[CsvCell]:
    verdict, failure, usage = record.verdict, record.failure, record.usage
    return (
        record.task,
        record.number,
        record.attempt_id.uid,
        verdict.reward if verdict else None,
        failure.kind if failure else None,
        failure.stage if failure else None,
        failure.message if failure else None,
        usage.turns,
        verdict.status if verdict else None,
        usage.tool_calls,
        usage.max_parallel_calls,
        usage.malformed_turns,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        verdict.passed if verdict else None,
        verdict.pass_ratio if verdict else None,
        round(record.seconds, 3),
    )


def render_tasks_csv(plan: Sequence[AttemptId], done: Mapping[AttemptId, AttemptRecord]) -> str:
    """Return the reward of each attempt: ``error`` without a verdict, empty if it was not made."""
    attempts = max((key.number for key in plan), default=-1) + 1
    head = ("task_id", *(f"traj_{number}" for number in range(attempts)))
    rows = (
        (task, *(_reward(done.get(AttemptId(task, number))) for number in range(attempts)))
        for task in sorted({key.task for key in plan})
    )
    return render_csv(head, rows)


def _reward(record: AttemptRecord | None) -> CsvCell:
    if record is None:
        return None
    return record.verdict.reward if record.verdict else "error"


def render_csv(head: Sequence[str], rows: Iterable[Sequence[CsvCell]]) -> str:
    """Return a table as CSV; None is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()
