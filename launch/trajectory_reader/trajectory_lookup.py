"""Finds trajectories by the names that people type: ``RUN/ID`` and ``EVALUATION/TASK/ATTEMPT``.

RUN is a run's id or directory; EVALUATION is a folder's path, of which the last part is enough in ``evaluations``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import NamedTuple

from launch.evaluation.results.evaluation_folder import EVALUATIONS_FOLDER, is_evaluation
from launch.trajectory_reader.evaluation_source import (
    EvaluationTrajectories,
    open_evaluation_trajectories,
)
from launch.trajectory_reader.recorded_trajectory import RecordedTrajectory
from launch.trajectory_reader.run_source import RunTrajectories, open_run_trajectories
from protocol.errors import UserError
from protocol.evaluation import AttemptId
from protocol.run_directory.layout import DEFAULT_RUNS_FOLDER, find_folder, is_run_directory
from protocol.run_directory.plain_files import require_plain_files

TrajectorySource = RunTrajectories | EvaluationTrajectories


class FoundTrajectory(NamedTuple):
    recorded: RecordedTrajectory
    source: TrajectorySource


def is_trajectory_name(name: str) -> bool:
    """Return whether a name points into an existing run or evaluation."""
    return _run_of(name) is not None or _evaluation_of(name) is not None


def find_trajectory(name: str) -> FoundTrajectory:
    """Return the trajectory with this name.  Raises UserError if there is none."""
    path = PurePath(name)
    if (run := _run_of(name)) is not None:
        source = open_run_trajectories(run)
        return FoundTrajectory(source.read_one(path.name), source)
    if (folder := _evaluation_of(name)) is not None:
        evaluation = open_evaluation_trajectories(folder)
        if not path.name.isdecimal():
            raise UserError(f"{name}: {path.name!r} is not the number of an attempt: write EVALUATION/TASK/0")
        return FoundTrajectory(evaluation.read_one(AttemptId(path.parent.name, int(path.name))), evaluation)
    raise UserError(
        f"{name} is not a trajectory: write RUN/ID (runs/demo-1/train-g000007-s03) for a run, or "
        "EVALUATION/TASK/ATTEMPT (evaluations/demo-qwen3-tasks/fix-git/0) for an evaluation with --save-trajectories"
    )


def open_trajectory_source(name: str) -> TrajectorySource:
    """Open all trajectories of a run or an evaluation.  Raises UserError."""
    if (run := _find_run(Path(name))) is not None:
        return open_run_trajectories(run)
    if (folder := _find_evaluation(Path(name))) is not None:
        return open_evaluation_trajectories(folder)
    raise UserError(
        f"{name} is neither a run's id or directory nor an evaluation's folder: "
        f"`ls {DEFAULT_RUNS_FOLDER} {EVALUATIONS_FOLDER}` lists those that exist"
    )


def _find_run(path: Path) -> Path | None:
    return _readable(find_folder(path), is_run_directory)


def _find_evaluation(path: Path) -> Path | None:
    return _readable(path, is_evaluation) or _readable(EVALUATIONS_FOLDER / path, is_evaluation)


def _readable(path: Path, is_one: Callable[[Path], bool]) -> Path | None:
    """Return ``path`` if it is one of the wanted folders.  Raises RunDirectoryError if reading it might never end."""
    if not is_one(path):
        return None
    require_plain_files(path)
    return path


def _run_of(name: str) -> Path | None:
    parts = PurePath(name).parts
    return _find_run(Path(*parts[:-1])) if len(parts) >= 2 else None


def _evaluation_of(name: str) -> Path | None:
    parts = PurePath(name).parts
    return _find_evaluation(Path(*parts[:-2])) if len(parts) >= 3 else None
