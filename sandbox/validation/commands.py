"""Carries out the commands of ``longshore tasks``; each returns an exit code and one JSON object."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import asdict
from typing import NamedTuple, TypedDict

from protocol.cli.output import align_columns
from sandbox.tasks.dataset import Dataset, dataset_checksum
from sandbox.tasks.task import Task
from sandbox.validation.dataset_report import build_report, report_rows
from sandbox.validation.live_answers import describe_live_answer
from sandbox.validation.network_needs import find_unmet_needs
from sandbox.validation.proofs import ProofVerdict, TaskProof
from sandbox.validation.task_warnings import classify_task_warnings

_NAMED = 3
"""Maximum number of tasks that are named for one note."""

_LEAST_WIDTH = 20
"""Minimum number of characters of a wrapped text in a line."""

Say = Callable[[str], None]
CommandOutcome = tuple[int, dict[str, object]]


class TaskNote(TypedDict):
    """A note on a usable task."""

    task: str
    kind: str
    """``network``, ``live``, ``warning``, or ``remark`` on what is not followed."""
    what: str


def validate_tasks(
    found: Dataset, prover: Callable[[Callable[[TaskProof], None]], list[TaskProof]] | None, say: Say, *, strict: bool
) -> CommandOutcome:
    """Report every problem and note, one line each, and a note of several tasks only once; prove with ``prover``, which
    reports each proof as it ends.  ``strict``: remarks fail too."""
    for problem in found.problems:
        say(str(problem))
    notes = [TaskNote(task=each.task, kind="remark", what=each.what) for each in found.remarks]
    notes += [note for task in found.tasks for note in _notes(task)]
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(note["what"], []).append(note["task"])
    for what, tasks in alike.items():
        say(f"note {_several(tasks)}: {what}")
    proofs = prover(lambda proof: _say_proof(proof, say)) if prover and found.tasks else []
    counts = {verdict.value: sum(proof.verdict is verdict for proof in proofs) for verdict in ProofVerdict}
    say(f"{_tasks(len(found.tasks))} can be used, {len(found.first_problems)} cannot")
    for notice in found.notices:
        say(f"warning: {notice}")
    if prover:
        say(", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing was tried")
    failed = (strict and any(note["kind"] == "remark" for note in notes)) or any(
        proof.verdict not in {ProofVerdict.PROVED, ProofVerdict.SKIPPED} for proof in proofs
    )
    answer: dict[str, object] = {
        "tasks": len(found.tasks),
        "unusable": len(found.first_problems),
        "problems": _named(found),
        "notes": notes,
        "notices": list(found.notices),
        "proofs": [asdict(proof) for proof in proofs],
        "proof_counts": counts if prover else {},
    }
    return 1 if failed or found.problems else 0, answer


def _notes(task: Task) -> list[TaskNote]:
    notes = [
        TaskNote(task=task.id, kind="network", what=f"{need.phase} needs {need.what}")
        for need in find_unmet_needs(task)
    ]
    if services := ", ".join(each.name for each in task.services):
        notes.append(TaskNote(task=task.id, kind="live", what=f"its tests need running services: {services}"))
    live = dict.fromkeys(describe_live_answer(step) for step in task.in_steps)
    notes += [TaskNote(task=task.id, kind="live", what=what) for what in live if what]
    for what, is_unfollowed in classify_task_warnings(task):
        notes.append(TaskNote(task=task.id, kind="remark" if is_unfollowed else "warning", what=what))
    return notes


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count:,} tasks"


def _several(tasks: list[str]) -> str:
    more = len(tasks) - _NAMED
    return ", ".join(tasks[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _say_proof(proof: TaskProof, say: Say) -> None:
    known = {"oracle": proof.oracle, "no-op": proof.noop, **proof.foils}
    scores = ", ".join(f"{name} {score:g}" for name, score in known.items() if score is not None)
    say(f"{proof.verdict} {proof.task}: {'; '.join(filter(None, (scores, proof.why)))}")
    for line in proof.log:
        say(f"    {line}")


def report_dataset(found: Dataset, say: Say, width: int) -> CommandOutcome:
    """Report the numbers of a data set as one table, wrapped to ``width`` characters."""
    report = build_report(found)
    rows = report_rows(report)
    columns = align_columns([row[:2] for row in rows]) if rows else []
    for numbers, (*_, what) in zip(columns, rows, strict=True):
        indent = f"{numbers}  "
        room = max(width - len(indent), _LEAST_WIDTH)
        say(indent + f"\n{' ' * len(indent)}".join(textwrap.wrap(what, room, break_on_hyphens=False)))
    offline = f"{report.usable_offline:,} of them without a network"
    unusable = f"{report.unusable:,} cannot: longshore tasks validate names each problem"
    say(f"{_tasks(report.usable)} can be used, {offline}; {unusable}")
    return 1 if found.problems else 0, asdict(report)


def list_tasks(found: Dataset, say: Say) -> CommandOutcome:
    """Report each problem and each task in one line, then the checksum of all."""
    for problem in found.problems:
        say(str(problem))
    rows = [_task_row(task) for task in found.tasks]
    cells = [[row.task, row.family, row.image, " ".join(row.services), str(row.tests or "–")] for row in rows]
    for line in align_columns([TaskRow._fields, *cells], text_columns=4) if rows else ():
        say(line)
    checksum = dataset_checksum(found.tasks)
    say(f"{_tasks(len(rows))}, {len(found.first_problems)} that cannot be used, checksum {checksum}")
    return 1 if found.problems else 0, {
        "tasks": [row._asdict() for row in rows],
        "unusable": len(found.first_problems),
        "problems": _named(found),
        "checksum": checksum,
    }


class TaskRow(NamedTuple):
    """One task in a list of tasks."""

    task: str
    family: str
    image: str
    """``built``, the image's name, or ``base``."""
    services: list[str]
    tests: int
    """Number of expected tests; 0 if only their reports tell."""


def _task_row(task: Task) -> TaskRow:
    services = [service.name for service in task.services]
    image = "built" if task.build else task.image or "base"
    return TaskRow(task.id, task.family, image, services, sum(len(step.expected_tests) for step in task.in_steps))


def _named(found: Dataset) -> list[dict[str, str]]:
    return [{"place": str(each.folder), "what": each.what, "why": each.why} for each in found.problems]
