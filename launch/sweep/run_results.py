"""What a training run came to, read from its folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import orjson
from pydantic import BaseModel, ValidationError

from launch.config import RunConfig
from launch.evaluation.online.run_evaluations import AFTER, BEFORE, read_run_evaluation
from launch.evaluation.scores import compare_attempts, drop_held_out_families, score_attempts
from launch.run_records.run_directory import CONFIG_FILE, SUMMARY_FILE
from launch.sweep.point_results import FigureFormat, PointResult, PointState, ResultColumn
from launch.sweep.shared_starts import find_shared_evaluation
from protocol.errors import UserError

COLUMNS = (
    ResultColumn("before", "pass@1 before", FigureFormat.SHARE),
    ResultColumn("after", "after", FigureFormat.SHARE),
    ResultColumn("difference", "difference", FigureFormat.CHANGE),
    ResultColumn("difference_stderr", "its error", FigureFormat.SHARE),
    ResultColumn("steps", "steps", FigureFormat.COUNT),
    ResultColumn("trained", "episodes trained", FigureFormat.COUNT),
    ResultColumn("staleness_mean", "token age", FigureFormat.NUMBER),
    ResultColumn("staleness_max", "oldest", FigureFormat.COUNT),
    ResultColumn("versions", "versions", FigureFormat.COUNT),
    ResultColumn("seconds", "seconds", FigureFormat.COUNT),
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


def read_run_result(run_dir: Path, others: Sequence[Path], config: RunConfig) -> PointResult:
    """What the run's folder says.  Raises UserError for a summary that nobody of us wrote."""
    summary = _read_summary(run_dir / SUMMARY_FILE)
    if summary is None:
        return PointResult(PointState.BROKEN_OFF if (run_dir / CONFIG_FILE).exists() else PointState.PLANNED)
    before = find_shared_evaluation(run_dir, others)
    figures: dict[str, float] = {
        "steps": summary.steps,
        "trained": summary.trajectories.trained,
        "staleness_mean": summary.token_age.mean,
        "staleness_max": summary.token_age.max,
        "versions": summary.weights.pushes,
        "seconds": summary.seconds,
        **_scores(run_dir, before, summary.steps, config),
    }
    state = PointState.ENDED if summary.ok else PointState.FAILED
    shared = before.name if before is not None and before != run_dir else ""
    return PointResult(state, "; ".join(summary.failed_checks), figures, _commit(run_dir), shared)


def _scores(run_dir: Path, before_dir: Path | None, steps: int, config: RunConfig) -> dict[str, float]:
    """pass@1 over held-out tasks of families that are trained, as the run's own summary has it."""
    held_out, found = (config.data.held_out_family,), dict[str, float]()
    before = None if before_dir is None else read_run_evaluation(before_dir, BEFORE, 0)
    after = read_run_evaluation(run_dir, AFTER, steps)
    if before:
        found["before"] = score_attempts(drop_held_out_families(before, held_out)).pass_at_1
    if after:
        found["after"] = score_attempts(drop_held_out_families(after, held_out)).pass_at_1
    if before and after:
        change = compare_attempts(drop_held_out_families(before, held_out), drop_held_out_families(after, held_out))
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
