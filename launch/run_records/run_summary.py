"""Reads summary.json of a finished run."""

from __future__ import annotations

import shlex
from pathlib import Path

from pydantic import BaseModel, ValidationError

from protocol.errors import UserError
from protocol.run_directory.layout import SUMMARY_FILE


class _Score(BaseModel):
    pass_at_1: float


class EvaluationScores(BaseModel):
    """Scores of a run's evaluations before and after training, as far as they were made."""

    before: _Score | None = None
    after: _Score | None = None
    difference: float | None = None
    difference_stderr: float | None = None


class _Trajectories(BaseModel):
    trained: int = 0


class _Staleness(BaseModel):
    max: float = 0.0
    mean: float = 0.0


class _Weights(BaseModel):
    versions: int = 0


class StoredRunSummary(BaseModel):
    """The part of a run's summary that lists and sweeps show."""

    ok: bool = False
    failed_checks: list[str] = []
    steps: int = 0
    seconds: float = 0.0
    trajectories: _Trajectories = _Trajectories()
    staleness: _Staleness = _Staleness()
    weights: _Weights = _Weights()
    evaluation: EvaluationScores = EvaluationScores()


def read_run_summary(run_dir: Path) -> StoredRunSummary | None:
    """Return the summary of a run; None without one.  Raises UserError if it is damaged."""
    file = run_dir / SUMMARY_FILE
    try:
        return StoredRunSummary.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise UserError(
            f"{file} is not a run's summary: remove the run (rm -r {shlex.quote(str(run_dir))}) to run it again"
        ) from error
