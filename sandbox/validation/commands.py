"""Carries out the commands of ``longshore tasks``; each returns an exit code and one JSON object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TypedDict

from sandbox.tasks.dataset import Dataset, dataset_checksum
from sandbox.tasks.task import Task
from sandbox.validation.network_needs import find_live_services, find_unmet_needs
from sandbox.validation.proofs import ProofVerdict, TaskProof
from sandbox.validation.task_warnings import find_task_warnings

_NAMED = 3
"""Maximum number of tasks that are named for one note."""

Say = Callable[[str], None]
CommandOutcome = tuple[int, dict[str, object]]


class TaskNote(TypedDict):
    """A note on a usable task."""

    task: str
    kind: str
    """``network``, ``live`` or ``warning``."""
    what: str


def validate_tasks(
    found: Dataset, prover: Callable[[Callable[[TaskProof], None]], list[TaskProof]] | None, say: Say
) -> CommandOutcome:
    """Report every problem and note, one line each, and a note of several tasks only once; prove with ``prover``, which
    reports each proof as it ends."""
    for problem in found.problems:
        say(str(problem))
    notes = [note for task in found.tasks for note in _notes(task)]
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(note["what"], []).append(note["task"])
    for what, tasks in alike.items():
        say(f"note {_several(tasks)}: {what}")
    proofs = prover(lambda proof: say(_line(proof))) if prover and found.tasks else []
    counts = {verdict.value: sum(proof.verdict is verdict for proof in proofs) for verdict in ProofVerdict}
    if not found.tasks and not found.problems:
        say("there is no task: name a folder of task folders, or a .jsonl file (--help lists the formats)")
    say(f"{len(found.tasks)} tasks can be used, {len(found.first_problems)} cannot")
    if prover:
        say(", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing was tried")
    failed = any(proof.verdict not in {ProofVerdict.PROVED, ProofVerdict.SKIPPED} for proof in proofs)
    answer: dict[str, object] = {
        "tasks": len(found.tasks),
        "unusable": len(found.first_problems),
        "problems": _named(found),
        "notes": notes,
        "proofs": [asdict(proof) for proof in proofs],
        "proof_counts": counts if prover else {},
    }
    return 1 if failed else _code(found), answer


def _notes(task: Task) -> list[TaskNote]:
    notes = [
        TaskNote(task=task.id, kind="network", what=f"{need.phase} needs {need.what}")
        for need in find_unmet_needs(task)
    ]
    if live := find_live_services(task):
        notes.append(TaskNote(task=task.id, kind="live", what=f"its tests need running services: {', '.join(live)}"))
    return notes + [TaskNote(task=task.id, kind="warning", what=what) for what in find_task_warnings(task)]


def _several(tasks: list[str]) -> str:
    more = len(tasks) - _NAMED
    return ", ".join(tasks[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _line(proof: TaskProof) -> str:
    known = {"oracle": proof.oracle, "no-op": proof.noop, **proof.foils}
    scores = ", ".join(f"{name} {score:g}" for name, score in known.items() if score is not None)
    return f"{proof.verdict} {proof.task}: {'; '.join(filter(None, (scores, proof.why)))}"


def list_tasks(found: Dataset, say: Say) -> CommandOutcome:
    """Report each problem and each task in one line, then the checksum of all."""
    for problem in found.problems:
        say(str(problem))
    rows = [
        {
            "task": task.id,
            "family": task.family,
            "image": "built" if task.build else task.image or "base",
            "services": [service.name for service in task.services],
            "tests": len(task.expected_tests),
        }
        for task in found.tasks
    ]
    for row in rows:
        say("  ".join(str(row[key]) for key in ("task", "family", "image")))
    say(f"{len(rows)} tasks, {len(found.first_problems)} that cannot be used, checksum {dataset_checksum(found.tasks)}")
    return _code(found), {
        "tasks": rows,
        "unusable": len(found.first_problems),
        "problems": _named(found),
        "checksum": dataset_checksum(found.tasks),
    }


def _named(found: Dataset) -> list[dict[str, str]]:
    return [{"place": str(each.folder), "what": each.what, "why": each.why} for each in found.problems]


def _code(found: Dataset) -> int:
    return 1 if found.problems else 0 if found.tasks else 2
