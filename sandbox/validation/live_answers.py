"""Describes whether a task's answer is something that runs, and whether its grading level fits. Pure."""

from __future__ import annotations

from sandbox.tasks.live_evidence import find_live_evidence
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel

_BESIDE = "its tests run beside the agent's processes, which can answer them (grading: live)"
WHAT_TO_WRITE = "write `grading: live` in its longshore.yaml"


def describe_live_answer(task: Task) -> str:
    """Return a sentence for the task's author and users; empty if everything of the agent's is dead as it should be."""
    evidence = find_live_evidence(task.run_tests, task.tests, task.instruction)
    more = f" and {len(evidence) - 1} more" if len(evidence) > 1 else ""
    where = f"`{evidence[0].what}` in {evidence[0].place}{more}" if evidence else ""
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
