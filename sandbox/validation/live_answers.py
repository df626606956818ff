"""Describes whether a task's answer is something that runs, and whether its grading level fits. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.tasks.live_evidence import LiveEvidence, find_all_looks, find_live_evidence
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel

_BESIDE = "its tests run beside the agent's processes, which can answer them (grading: live)"
WHAT_TO_WRITE = "write `grading: live` in its longshore.yaml"


def describe_live_answer(task: Task) -> str:
    """Return a sentence for the task's author and users; empty if everything of the agent's is dead as it should be."""
    env = task.env | task.test_env
    where = _name_first(find_live_evidence(task.run_tests, task.tests, task.instruction, env))
    if not where and task.grading is GradingLevel.SAME:
        own = _name_first(find_all_looks(task.run_tests, task.tests, env))
        more = f"and start some: if those are not the same, {WHAT_TO_WRITE}"
        return f"its tests look for running programs ({own}) {more}" if own else ""
    match task.grading:
        case GradingLevel.LIVE:
            return f"{_BESIDE}, because of {where}" if where else _BESIDE
        case GradingLevel.SIBLING:
            return ""
        case level:
            return (
                f"its tests look for running programs ({where}), but at grading level {level} none of the agent's runs "
                f"when they start: {WHAT_TO_WRITE}"
                if where
                else ""
            )


def _name_first(evidence: Sequence[LiveEvidence]) -> str:
    """Return the first piece and the number of others; empty without any."""
    if not evidence:
        return ""
    more = f" and {len(evidence) - 1} more" if len(evidence) > 1 else ""
    return f"`{evidence[0].what}` in {evidence[0].place}{more}"
