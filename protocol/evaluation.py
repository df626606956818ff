"""Attempts of evaluations, and the file that keeps them.

Every evaluation, of a run or standalone, produces :class:`AttemptRecord` and keeps them in the same file, one JSON line
each.  An attempt has a verdict, which the policy earned, or the infrastructure failure that prevented one; it has both
if only the clean-up failed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from protocol.errors import UserError
from protocol.files.filesystem import append_atomically, cut_torn_line, replace_file
from protocol.trajectory import EpisodeStatus, InfraFailure, TestResult, Trajectory, TurnKind

ATTEMPTS_FILE = "attempts.jsonl"


class AttemptStage(StrEnum):
    """Stages of an attempt, in order."""

    RESET = "reset"
    """A sandbox is prepared for the task."""
    AGENT = "agent"
    """The agent acts and the model answers."""
    EVALUATE = "evaluate"
    """The tests run."""
    CLEAN_UP = "clean_up"
    """The sandbox is removed."""


class AttemptId(NamedTuple):
    task: str
    number: int
    """Number of the attempt at its task, from 0."""

    @property
    def uid(self) -> str:
        return f"{self.task}.{self.number}"

    def sampling_seed(self, seed: int) -> int:
        """Return the sampling seed of the attempt, the same each time."""
        return random.Random(f"{seed}/{self.task}/{self.number}").getrandbits(31)


@dataclass(frozen=True, slots=True)
class AttemptError:
    stage: AttemptStage
    kind: InfraFailure
    message: str
    """One line."""


@dataclass(frozen=True, slots=True)
class AttemptVerdict:
    passed: bool
    """Whether all tests passed, whatever the reward is."""
    reward: float
    pass_ratio: float
    """Share of the tests that passed."""
    status: EpisodeStatus
    parts: dict[str, float] = field(default_factory=dict[str, float])
    """Parts of the reward by name."""
    tests: tuple[TestResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """Turns, tool calls and tokens of an attempt; 0 if not known."""

    turns: int = 0
    tool_calls: int = 0
    max_parallel_calls: int = 0
    """Largest number of calls in one turn."""
    malformed_turns: int = 0
    """Number of turns with a call that could not be parsed."""
    prompt_tokens: int = 0
    """Total length of all prompts, as a provider counts them."""
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """Outcome of one attempt, and one line of the attempts file."""

    task: str
    number: int
    family: str
    seconds: float
    """Wall-clock seconds from the sandbox's start to its end."""
    verdict: AttemptVerdict | None = None
    failure: AttemptError | None = None
    usage: AttemptUsage = field(default_factory=AttemptUsage)
    greedy: bool = False
    """Whether it took the likeliest token each time instead of sampling."""
    versions: tuple[int, ...] = ()
    """Weight versions that sampled it, each once; empty if it ended before the first token or has no versions."""
    recording: str = ""
    """Name of its terminal recording without ``.cast``."""
    remark: str = ""
    """One line about a thing that is not known of the attempt, such as its patch, and why; empty if all is known."""

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.task, self.number)

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.passed


def record_of_trajectory(trajectory: Trajectory, family: str) -> AttemptRecord:
    """Return the record of an episode that a worker ran for an evaluation."""
    request, tests = trajectory.request, trajectory.tests
    turns = [turn for segment in trajectory.segments for turn in segment.turns if turn.kind is TurnKind.MODEL]
    return AttemptRecord(
        request.task,
        request.sample,
        family,
        round(trajectory.timings_ms.get("total", 0.0) / 1000, 3),
        AttemptVerdict(
            trajectory.passed,
            trajectory.reward.total,
            sum(test.passed for test in tests) / len(tests) if tests else 0.0,
            trajectory.status,
            trajectory.reward.parts,
            tests,
        ),
        usage=AttemptUsage(
            turns=len(turns),
            malformed_turns=sum(turn.malformed for turn in turns),
            completion_tokens=trajectory.sampled_tokens,
        ),
        greedy=request.greedy,
        versions=trajectory.sampled_versions,
        recording=request.attempt_id,
    )


def latest_records(records: Iterable[AttemptRecord]) -> dict[AttemptId, AttemptRecord]:
    """Return the last record of each attempt; a failure never replaces a verdict."""
    found: dict[AttemptId, AttemptRecord] = {}
    for record in records:
        before = found.get(record.attempt_id)
        if before is None or before.verdict is None or record.verdict is not None:
            found[record.attempt_id] = record
    return found


_RECORD = TypeAdapter(AttemptRecord)


class AttemptFile:
    """The attempts of one evaluation on disk.  It has one writer at a time."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if an existing file cannot be opened."""
        self._path = path
        cut_torn_line(path)

    def append(self, record: AttemptRecord) -> None:
        """Append a record whole or, raising OSError, not at all."""
        append_atomically(self._path, _RECORD.dump_json(record) + b"\n")


def read_attempts(path: Path, *, skip_damaged: bool = False) -> dict[AttemptId, AttemptRecord]:
    """Return the attempts of a file, which may be missing; a last line without its end is still being written.

    Raises OSError, and UserError for a damaged line unless it is to be skipped."""
    found: list[AttemptRecord] = []
    data = path.read_bytes() if path.exists() else b""
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            found.append(_RECORD.validate_json(line))
        except ValidationError as error:
            if not skip_damaged:
                raise UserError(
                    f"{path}:{number} is not an attempt of an evaluation: remove the line, and the attempt is run again"
                ) from error
    return latest_records(found)


def write_attempts(path: Path, records: Iterable[AttemptRecord]) -> None:
    """Replace the attempts of a file.  Raises OSError."""
    replace_file(path, b"".join(_RECORD.dump_json(record) + b"\n" for record in records))
