"""Attempts at SWE-SYNTH's bugs as the samples of its document, which ``longshore sft --data`` reads.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

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
) -> dict[str, JsonValue] | None:
    """Return an attempt's sample; None for a task that is no bug, an attempt without a verdict, or one whose whole
    conversation is not known."""
    bug, verdict = find_bug(task), record.verdict
    conversation = cast("list[Mapping[str, JsonValue]]", trajectory.get("messages") or [])
    if bug is None or verdict is None or not conversation or conversation[0]["role"] == "assistant":
        return None
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
