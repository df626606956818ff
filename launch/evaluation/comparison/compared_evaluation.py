"""What is compared: an evaluation's folder, or one of a run's own evaluations by its name (``runs/ID/after``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import orjson
from pydantic import TypeAdapter, ValidationError

from actors.scheduler.evaluation import EvaluationAttempt
from launch.config import RunConfig
from launch.evaluation.attempts import AttemptId, AttemptRecord, AttemptUsage
from launch.evaluation.evaluation_options import SolverKind, score_settings
from launch.evaluation.online.run_evaluations import AFTER, list_evaluation_files
from launch.evaluation.pass_at_k import TaskTally
from launch.evaluation.results.evaluation_folder import (
    EVALUATIONS_FOLDER,
    SPEC_FILE,
    TERMINALS_FOLDER,
    read_attempt_records,
)
from launch.evaluation.results.evaluation_summary import tally_tasks
from launch.run_records.run_directory import config_tables, load_stored_config
from launch.trajectory_reader.run_source import is_run
from launch.trajectory_reader.verdict import AttemptVerdict
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.trajectory import make_trajectory_id

_ATTEMPTS = TypeAdapter(list[EvaluationAttempt])
_TASKS_OF_A_RUN = ("data.", "run.seed", "evaluation.tasks_per_family")
"""Keys that a run's held-out tasks depend on."""


@dataclass(frozen=True, slots=True)
class ComparedEvaluation:
    name: str
    path: Path
    model: str
    data_set: str
    """Equal where the tasks are."""
    data_name: str
    """For people."""
    sampling: str
    """How replies are drawn; empty for who samples none."""
    score_settings: Mapping[str, JsonValue]
    """What else a score depends on."""
    records: Mapping[AttemptId, AttemptRecord]
    recordings: Mapping[AttemptId, Path]

    @property
    def tallies(self) -> dict[str, TaskTally]:
        return tally_tasks([*self.records.values()])

    @property
    def errors(self) -> int:
        """Attempts without a verdict."""
        return sum(record.verdict is None for record in self.records.values())


def open_evaluations(names: Sequence[str]) -> list[ComparedEvaluation]:
    """Each has a name of its own.  Raises UserError for what is none, or is named twice."""
    sides = [_open_evaluation(name) for name in names]
    if twice := [side for side, count in Counter(side.path for side in sides).items() if count > 1]:
        raise UserError(f"{twice[0]} is named twice: name each evaluation once")
    names_of = Counter(side.name for side in sides)
    return [side if names_of[side.name] == 1 else replace(side, name=str(side.path)) for side in sides]


def _open_evaluation(name: str) -> ComparedEvaluation:
    for path in (Path(name), EVALUATIONS_FOLDER / name):
        if (path / SPEC_FILE).is_file():
            return _read_standalone(path)
    for path in (Path(name), RunConfig().run.dir / name):
        if is_run(path):
            return _read_from_run(path, AFTER)
        if is_run(path.parent):
            return _read_from_run(path.parent, path.name)
    raise UserError(
        f"{name} is no evaluation: give the folder that launch.evaluate wrote, or a run's own evaluation as "
        f"{RunConfig().run.dir}/ID/{AFTER}"
    )


def _read_standalone(path: Path) -> ComparedEvaluation:
    file = path / SPEC_FILE
    try:
        what = cast("dict[str, JsonValue]", orjson.loads(file.read_bytes()))
        sampling = f"temperature {what['temperature']}" if not what["greedy"] else "greedy"
        checksum, tasks, who = str(what["tasks' checksum"]), str(what["tasks"]), str(what["agent"])
        recipe = cast("dict[str, JsonValue]", what["recipe"])
        model = str(what["model name"] or what["model"] or who)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not readable ({error}): evaluate again into another folder") from error
    records = read_attempt_records(path)
    if not records:
        raise UserError(f"{path} has no attempt yet: give its command again (python -m launch.evaluate …)")
    return ComparedEvaluation(
        path.name,
        path,
        model,
        checksum,
        tasks,
        sampling if who in {SolverKind.SERVED, SolverKind.URL} else "",
        recipe,
        records,
        _existing({attempt: path / TERMINALS_FOLDER / f"{attempt.uid}.cast" for attempt in records}),
    )


def _read_from_run(path: Path, name: str) -> ComparedEvaluation:
    """Its sampled attempts; the greedy ones are another way of sampling."""
    there = list_evaluation_files(path)
    if (file := there.get(name)) is None:
        raise UserError(
            f"{path} has no evaluation {name!r}: "
            + (f"name one of {', '.join(f'{path}/{each}' for each in there)}" if there else "none has finished yet")
        )
    try:
        attempts = _ATTEMPTS.validate_python(orjson.loads(file.read_bytes())["attempts"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise UserError(f"{file} is no evaluation of a run ({error}): leave it out") from error
    config = load_stored_config(path)
    records, recordings = _records(attempts), _recordings(path, name, attempts)
    values = {f"{table}.{key}": value for table, keys in config_tables(config).items() for key, value in keys.items()}
    tasks = {key: value for key, value in values.items() if key.startswith(_TASKS_OF_A_RUN)}
    return ComparedEvaluation(
        f"{path.name}/{name}",
        path / name,
        f"{path.name}, {name}",
        orjson.dumps(tasks, option=orjson.OPT_SORT_KEYS).decode(),
        f"held out by {path.name}",
        "temperature 1.0",
        score_settings(config),
        records,
        recordings,
    )


def _records(attempts: Sequence[EvaluationAttempt]) -> dict[AttemptId, AttemptRecord]:
    found: dict[AttemptId, AttemptRecord] = {}
    count = Counter[str]()
    for each in attempts:
        if not each.greedy:
            verdict = AttemptVerdict(each.passed, each.reward, float(each.passed), each.status)
            number = count[each.task]
            count[each.task] += 1
            effort = AttemptUsage(completion_tokens=each.sampled_tokens)
            found[AttemptId(each.task, number)] = AttemptRecord(
                each.task, number, each.family, 0.0, verdict, effort=effort
            )
    return found


def _recordings(path: Path, name: str, attempts: Sequence[EvaluationAttempt]) -> dict[AttemptId, Path]:
    """A run's attempts stand in the order of their groups, one for each task, and samples."""
    order = {task: number for number, task in enumerate(dict.fromkeys(each.task for each in attempts))}
    groups = {each.task: each.group if each.group >= 0 else order[each.task] for each in attempts}
    found: dict[AttemptId, Path] = {}
    for attempt in _records(attempts):
        prefix = make_trajectory_id(groups[attempt.task], attempt.number, name)
        if made := sorted((path / "terminals").glob(f"{prefix}-a*.cast")):
            found[attempt] = made[-1]
    return found


def _existing(files: Mapping[AttemptId, Path]) -> dict[AttemptId, Path]:
    return {attempt: file for attempt, file in files.items() if file.is_file()}
