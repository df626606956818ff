"""What an evaluation is made of: attempts at tasks, and what each came to.  Pure.

An attempt has either a verdict, which is the policy's doing, or a failure of the infrastructure with the stage in which
it happened, which is nobody's.  Where only the clean-up failed it has both.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from launch.trajectory_reader.verdict import AttemptVerdict


class AttemptStage(StrEnum):
    """Of an attempt, in their order."""

    RESET = "reset"
    """A sandbox is made ready for the task."""
    AGENT = "agent"
    """The agent acts, and the model answers."""
    EVALUATE = "evaluate"
    """The tests run."""
    CLEAN_UP = "clean_up"
    """The sandbox goes."""


class AttemptId(NamedTuple):
    task: str
    number: int
    """From 0 on."""

    @property
    def uid(self) -> str:
        return f"{self.task}.{self.number}"

    def sampling_seed(self, seed: int) -> int:
        """Of its sampling, the same each time."""
        return random.Random(f"{seed}/{self.task}/{self.number}").getrandbits(31)


def plan_attempts(tasks: Sequence[str], attempts: int) -> list[AttemptId]:
    """Attempt by attempt over all tasks, so that an early end still covers each task."""
    return [AttemptId(task, number) for number in range(attempts) for task in tasks]


@dataclass(frozen=True, slots=True)
class AttemptError:
    stage: AttemptStage
    kind: str
    """Name of the error's class."""
    message: str
    """One line."""




@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """What an attempt cost and did."""

    turns: int = 0
    calls: int = 0
    widest: int = 0
    """Calls of the turn that made the most."""
    malformed: int = 0
    """Turns with a call that could not be read."""
    prompt_tokens: int = 0
    """Of all prompts together, as a provider counts them: what each turn was asked with."""
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One line of the attempts file."""

    task: str
    number: int
    family: str
    seconds: float
    """Wall clock, from the sandbox's start to its end."""
    verdict: AttemptVerdict | None = None
    failure: AttemptError | None = None
    effort: AttemptUsage = field(default_factory=AttemptUsage)

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.task, self.number)


def latest_records(records: Iterable[AttemptRecord]) -> dict[AttemptId, AttemptRecord]:
    """The last word on each attempt; a verdict is never replaced by a failure."""
    found: dict[AttemptId, AttemptRecord] = {}
    for record in records:
        before = found.get(record.attempt_id)
        if before is None or before.verdict is None or record.verdict is not None:
            found[record.attempt_id] = record
    return found


def remaining_attempts(
    plan: Iterable[AttemptId], done: Mapping[AttemptId, AttemptRecord], *, retry_errors: bool = False
) -> list[AttemptId]:
    """What of a plan is still to be run: what was never tried, and of what failed nothing unless it is asked for."""
    kept: Collection[AttemptId] = {key for key, record in done.items() if record.verdict or not retry_errors}
    return [key for key in plan if key not in kept]
