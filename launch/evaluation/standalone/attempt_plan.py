"""Plans the attempts of a standalone evaluation.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from protocol.evaluation import AttemptId, AttemptRecord


def plan_attempts(tasks: Sequence[str], attempts: int) -> list[AttemptId]:
    """Return one attempt over all tasks after another, so that an early end still covers each task."""
    return [AttemptId(task, number) for number in range(attempts) for task in tasks]


def remaining_attempts(
    plan: Iterable[AttemptId], done: Mapping[AttemptId, AttemptRecord], *, retry_errors: bool = False
) -> list[AttemptId]:
    """Return the attempts still to be run: those never tried, and with ``retry_errors`` those without a verdict."""
    kept = {key for key, record in done.items() if record.verdict or not retry_errors}
    return [key for key in plan if key not in kept]
