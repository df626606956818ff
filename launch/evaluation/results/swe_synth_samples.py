"""Attempts at SWE-SYNTH's bugs as the samples of its document, which ``longshore sft --data`` reads.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from launch.evaluation.results.trainable_messages import NOT_GRADED, NoSample, find_conversation
from protocol.evaluation import AttemptRecord
from protocol.events import JsonValue
from sandbox.tasks.formats.swe_bugs.bug_rows import find_bug
from sandbox.tasks.task import Task

PATCH = "patch"
"""Key of a trajectory, as ``--save-trajectories`` writes it, with what the attempt changed."""
TOOLS = "tools"
"""The same, with the schemas of the tools that a harness offered to the model."""


def build_sample(
    task: Task, record: AttemptRecord, trajectory: Mapping[str, JsonValue], model: str
) -> dict[str, JsonValue] | NoSample | None:
    """Return an attempt's sample, or why it has none; None for a task that is no bug."""
    if (bug := find_bug(task)) is None:
        return None
    if (verdict := record.verdict) is None:
        return NOT_GRADED
    if isinstance(conversation := find_conversation(trajectory), NoSample):
        return conversation
    passed = {test.name for test in verdict.tests if test.passed}
    missing = [name for name in task.expected_tests if name not in passed]
    usage, tools = record.usage, trajectory.get(TOOLS)
    return {
        "task_id": bug.task_id,
        "score": float(verdict.passed),
        "model": model,
        "latency_ms": round(record.seconds * 1000),
        "extra": {
            "swe_instance_id": bug.swe_instance_id,
            "bug_types": [*bug.bug_types],
            "problem_statement": task.instruction,
            "fix_patch": trajectory.get(PATCH, ""),
            "conversation": cast("JsonValue", conversation),
            **({"tools": tools} if tools else {}),
            "model_calls": usage.turns,
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            },
            "all_passed": verdict.passed,
            "all_result": _ratio(task.expected_tests, passed),
            "target_tests": [*bug.target_tests],
            "target_result": _ratio(bug.target_tests, passed),
            "missing_tests": cast("JsonValue", missing),
        },
    }


def _ratio(names: tuple[str, ...], passed: set[str]) -> str:
    """Return ``234/236``: how many of the tests passed, of how many."""
    return f"{len(passed.intersection(names))}/{len(names)}"
