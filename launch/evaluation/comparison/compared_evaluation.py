"""Opens the evaluations to compare: standalone folders, and a run's own by name (``RUN/after``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launch.evaluation.evaluation_options import SolverKind
from launch.evaluation.held_out.evaluation_store import AFTER, SOLVER, list_run_evaluations
from launch.evaluation.results.evaluation_folder import (
    EVALUATIONS_FOLDER,
    TERMINALS_FOLDER,
    EvaluationSpec,
    is_evaluation,
    read_attempt_records,
    read_spec,
)
from launch.evaluation.scores import TaskTally, tally_tasks
from protocol.errors import UserError
from protocol.evaluation import AttemptId, AttemptRecord
from protocol.run_directory.layout import find_folder, is_run_directory
from protocol.run_directory.plain_files import require_plain_files


@dataclass(frozen=True, slots=True)
class ComparedEvaluation:
    name: str
    path: Path
    spec: EvaluationSpec
    records: Mapping[AttemptId, AttemptRecord]
    recordings: Mapping[AttemptId, Path]
    """Terminal recordings that exist."""

    @property
    def model(self) -> str:
        spec = self.spec
        return f"{spec.model}, {spec.name}" if spec.name else spec.model_name or spec.model or spec.solver

    @property
    def sampling(self) -> str:
        """Sampling of the replies; empty without a model."""
        samples = self.spec.solver in {SolverKind.SERVED, SolverKind.URL, SOLVER}
        return self.spec.sampling if samples else ""

    @property
    def tallies(self) -> dict[str, TaskTally]:
        return tally_tasks(self.records.values())

    @property
    def errors(self) -> int:
        """Number of attempts without a verdict."""
        return sum(record.verdict is None for record in self.records.values())


def open_evaluations(names: Sequence[str]) -> list[ComparedEvaluation]:
    """Open evaluations and give each a distinct name.  Raises UserError for one that is none or is named twice."""
    sides = [_open_evaluation(name) for name in names]
    if twice := [side for side, count in Counter(side.path for side in sides).items() if count > 1]:
        raise UserError(f"{twice[0]} is named twice: name each evaluation once")
    counts = Counter(side.name for side in sides)
    return [side if counts[side.name] == 1 else replace(side, name=str(side.path)) for side in sides]


def _open_evaluation(name: str) -> ComparedEvaluation:
    for path in (Path(name), EVALUATIONS_FOLDER / name):
        if is_evaluation(path):
            return _read(path)
    path = find_folder(Path(name))
    if is_run_directory(path):
        return _read(_find_in_run(path, AFTER))
    if is_run_directory(path.parent):
        return _read(_find_in_run(path.parent, path.name))
    raise UserError(
        f"{name} is not an evaluation: give the folder that longshore evaluate wrote, a run's id or directory, or one "
        f"of its evaluations as RUN/{AFTER}"
    )


def _find_in_run(run_dir: Path, name: str) -> Path:
    known = list_run_evaluations(run_dir)
    if (folder := known.get(name)) is None:
        choices = ", ".join(f"{run_dir}/{each}" for each in known)
        why = f"name one of {choices}" if known else "none has finished yet"
        raise UserError(f"{run_dir} has no evaluation {name!r}: {why}")
    return folder


def _read(path: Path) -> ComparedEvaluation:
    """Read the attempts that sample as the specification says; a run's evaluation has greedy ones beside them."""
    require_plain_files(path)
    spec, records = read_spec(path), read_attempt_records(path)
    if not records:
        raise UserError(f"{path} has no attempt yet: repeat its command (longshore evaluate …)")
    if spec.name:
        records = {attempt: record for attempt, record in records.items() if not record.greedy}
    terminals = (path.parent.parent if spec.name else path) / TERMINALS_FOLDER
    files = {attempt: terminals / f"{record.recording}.cast" for attempt, record in records.items() if record.recording}
    recordings = {attempt: file for attempt, file in files.items() if file.is_file()}
    name = f"{path.parent.parent.name}/{spec.name}" if spec.name else path.name
    return ComparedEvaluation(name, path, spec, records, recordings)
