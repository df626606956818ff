"""What a training run came to, read from its folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import orjson
from pydantic import BaseModel, ValidationError

from launch.config import RunConfig
from launch.evaluation_files import AFTER, BEFORE, read_attempts
from launch.evaluations import compare, score, trained
from launch.rundir import CONFIG_FILE, SUMMARY_FILE
from launch.sweep.figures import Column, Outcome, Shape, State
from launch.sweep.starts import evaluated_alike
from protocol.errors import UserError

COLUMNS = (
    Column("before", "pass@1 before", Shape.SHARE),
    Column("after", "after", Shape.SHARE),
    Column("difference", "difference", Shape.CHANGE),
    Column("difference_stderr", "its error", Shape.SHARE),
    Column("steps", "steps", Shape.COUNT),
    Column("trained", "episodes trained", Shape.COUNT),
    Column("age_mean", "token age", Shape.NUMBER),
    Column("age_max", "oldest", Shape.COUNT),
    Column("versions", "versions", Shape.COUNT),
    Column("seconds", "seconds", Shape.COUNT),
)


class _Trajectories(BaseModel):
    trained: int


class _Age(BaseModel):
    max: float
    mean: float


class _Weights(BaseModel):
    pushes: int


class _Summary(BaseModel):
    """What is read of a run's."""

    ok: bool
    failed_checks: list[str] = []
    steps: int
    seconds: float
    trajectories: _Trajectories
    token_age: _Age
    weights: _Weights


def outcome_of(run_dir: Path, others: Sequence[Path], config: RunConfig) -> Outcome:
    """What the run's folder says.  Raises UserError for a summary that nobody of us wrote."""
    summary = _read_summary(run_dir / SUMMARY_FILE)
    if summary is None:
        return Outcome(State.BROKEN_OFF if (run_dir / CONFIG_FILE).exists() else State.PLANNED)
    before = evaluated_alike(run_dir, others)
    figures: dict[str, float] = {
        "steps": summary.steps,
        "trained": summary.trajectories.trained,
        "age_mean": summary.token_age.mean,
        "age_max": summary.token_age.max,
        "versions": summary.weights.pushes,
        "seconds": summary.seconds,
        **_scores(run_dir, before, summary.steps, config),
    }
    state = State.ENDED if summary.ok else State.FAILED
    shared = before.name if before is not None and before != run_dir else ""
    return Outcome(state, "; ".join(summary.failed_checks), figures, _commit(run_dir), shared)


def _scores(run_dir: Path, before_dir: Path | None, steps: int, config: RunConfig) -> dict[str, float]:
    """pass@1 over held-out tasks of families that are trained, as the run's own summary has it."""
    held_out, found = (config.data.held_out_family,), dict[str, float]()
    before = None if before_dir is None else read_attempts(before_dir, BEFORE, 0)
    after = read_attempts(run_dir, AFTER, steps)
    if before:
        found["before"] = score(trained(before, held_out)).pass_at_1
    if after:
        found["after"] = score(trained(after, held_out)).pass_at_1
    if before and after:
        change = compare(trained(before, held_out), trained(after, held_out))
        found["difference"] = change.difference
        if change.stderr is not None:
            found["difference_stderr"] = change.stderr
    return found


def _read_summary(file: Path) -> _Summary | None:
    if not file.exists():
        return None
    try:
        return _Summary.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise UserError(
            f"{file} is no run's summary: remove the run (rm -r {shlex.quote(str(file.parent))}), then the same command"
        ) from error


def _commit(run_dir: Path) -> str:
    record = orjson.loads((run_dir / CONFIG_FILE).read_bytes())
    return str(record["code"]["commit"])
