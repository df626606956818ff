"""An evaluation beside training: which weights it evaluates, and the file that keeps its attempts.

An attempt is on disk before it counts, so a restarted scheduler or a resumed run continues after the attempts that are
there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from actors.scheduler.evaluation import EvaluationAttempt, EvaluationPlan
from protocol.files.filesystem import append_atomically, cut_torn_line
from protocol.trajectory import RolloutRequest
from protocol.weights import WeightVersion

_ATTEMPT = TypeAdapter(EvaluationAttempt)


@dataclass(frozen=True, slots=True)
class OnlineEvaluationPlan:
    """A plan, the one version that may sample it, and where its attempts are kept."""

    evaluation: EvaluationPlan
    version: WeightVersion
    """The weights that sample every attempt."""
    attempts_path: Path
    """The file of finished attempts, one JSON line each."""


class EvaluationAttemptFile:
    """The attempts of one evaluation on disk.  It has one writer at a time."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if an existing file cannot be opened."""
        self._path = path
        cut_torn_line(path)

    def append_attempt(self, request: RolloutRequest, attempt: EvaluationAttempt) -> None:
        """Append one attempt.  Raises OSError."""
        line = {"group": request.group, "sample": request.sample, "attempt": asdict(attempt)}
        append_atomically(self._path, orjson.dumps(line) + b"\n")

    def read_attempts(self) -> dict[tuple[int, int], EvaluationAttempt]:
        """Return (task index, sample) → attempt; of two the first.  Damaged lines are skipped.  Raises OSError."""
        found: dict[tuple[int, int], EvaluationAttempt] = {}
        for line in self._path.read_bytes().splitlines() if self._path.exists() else []:
            with suppress(ValueError, KeyError, TypeError):
                value = orjson.loads(line)
                found.setdefault((value["group"], value["sample"]), _ATTEMPT.validate_python(value["attempt"]))
        return found
