"""What is compared: an evaluation's folder, or one of a run's own evaluations by its name (``runs/ID/after``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import orjson
from pydantic import TypeAdapter, ValidationError

from actors.evaluation import Attempt
from launch.config import RunConfig
from launch.evaluate.arguments import Who, meant
from launch.evaluate.attempts import AttemptId, Effort, Record, Verdict
from launch.evaluate.folder import EVALUATIONS, TERMINALS, WHAT_FILE, read_attempts
from launch.evaluate.pass_at_k import Tally
from launch.evaluate.summary import tallies
from launch.evaluation_files import AFTER, own_evaluations
from launch.recorded.of_run import is_run
from launch.rundir import config_values, stored_config
from protocol.errors import UserError
from protocol.events import Json
from protocol.trajectory import trajectory_id

_ATTEMPTS = TypeAdapter(list[Attempt])
_TASKS_OF_A_RUN = ("data.", "run.seed", "evaluation.tasks_per_family")
"""Keys that a run's held-out tasks depend on."""


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    path: Path
    model: str
    data_set: str
    """Equal where the tasks are."""
    data_name: str
    """For people."""
    sampling: str
    """How replies are drawn; empty for who samples none."""
    setting: Mapping[str, Json]
    """What else a score depends on."""
    records: Mapping[AttemptId, Record]
    recordings: Mapping[AttemptId, Path]

    @property
    def tallies(self) -> dict[str, Tally]:
        return tallies([*self.records.values()])

    @property
    def errors(self) -> int:
        """Attempts without a verdict."""
        return sum(record.verdict is None for record in self.records.values())


def open_sides(names: Sequence[str]) -> list[Side]:
    """Each has a name of its own.  Raises UserError for what is none, or is named twice."""
    sides = [_open(name) for name in names]
    if twice := [side for side, count in Counter(side.path for side in sides).items() if count > 1]:
        raise UserError(f"{twice[0]} is named twice: name each evaluation once")
    names_of = Counter(side.name for side in sides)
    return [side if names_of[side.name] == 1 else replace(side, name=str(side.path)) for side in sides]


def _open(name: str) -> Side:
    for path in (Path(name), EVALUATIONS / name):
        if (path / WHAT_FILE).is_file():
            return _evaluation(path)
    for path in (Path(name), RunConfig().run.dir / name):
        if is_run(path):
            return _of_run(path, AFTER)
        if is_run(path.parent):
            return _of_run(path.parent, path.name)
    raise UserError(
        f"{name} is no evaluation: give the folder that launch.evaluate wrote, or a run's own evaluation as "
        f"{RunConfig().run.dir}/ID/{AFTER}"
    )


def _evaluation(path: Path) -> Side:
    file = path / WHAT_FILE
    try:
        what = cast("dict[str, Json]", orjson.loads(file.read_bytes()))
        sampling = f"temperature {what['temperature']}" if not what["greedy"] else "greedy"
        checksum, tasks, who = str(what["tasks' checksum"]), str(what["tasks"]), str(what["agent"])
        recipe = cast("dict[str, Json]", what["recipe"])
        model = str(what["model name"] or what["model"] or who)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not readable ({error}): evaluate again into another folder") from error
    records = read_attempts(path)
    if not records:
        raise UserError(f"{path} has no attempt yet: give its command again (python -m launch.evaluate …)")
    return Side(
        path.name,
        path,
        model,
        checksum,
        tasks,
        sampling if who in {Who.SERVED, Who.URL} else "",
        recipe,
        records,
        _existing({attempt: path / TERMINALS / f"{attempt.uid}.cast" for attempt in records}),
    )


def _of_run(path: Path, name: str) -> Side:
    """Its sampled attempts; the greedy ones are another way of sampling."""
    there = own_evaluations(path)
    if (file := there.get(name)) is None:
        raise UserError(
            f"{path} has no evaluation {name!r}: "
            + (f"name one of {', '.join(f'{path}/{each}' for each in there)}" if there else "none has finished yet")
        )
    try:
        attempts = _ATTEMPTS.validate_python(orjson.loads(file.read_bytes())["attempts"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise UserError(f"{file} is no evaluation of a run ({error}): leave it out") from error
    config = stored_config(path)
    records, recordings = _records(attempts), _recordings(path, name, attempts)
    values = {f"{table}.{key}": value for table, keys in config_values(config).items() for key, value in keys.items()}
    tasks = {key: value for key, value in values.items() if key.startswith(_TASKS_OF_A_RUN)}
    return Side(
        f"{path.name}/{name}",
        path / name,
        f"{path.name}, {name}",
        orjson.dumps(tasks, option=orjson.OPT_SORT_KEYS).decode(),
        f"held out by {path.name}",
        "temperature 1.0",
        meant(config),
        records,
        recordings,
    )


def _records(attempts: Sequence[Attempt]) -> dict[AttemptId, Record]:
    found: dict[AttemptId, Record] = {}
    count = Counter[str]()
    for each in attempts:
        if not each.greedy:
            verdict = Verdict(each.passed, each.reward, float(each.passed), each.status)
            number = count[each.task]
            count[each.task] += 1
            effort = Effort(completion_tokens=each.sampled_tokens)
            found[AttemptId(each.task, number)] = Record(each.task, number, each.family, 0.0, verdict, effort=effort)
    return found


def _recordings(path: Path, name: str, attempts: Sequence[Attempt]) -> dict[AttemptId, Path]:
    """A run's attempts stand in the order of their groups, one for each task, and samples."""
    order = {task: number for number, task in enumerate(dict.fromkeys(each.task for each in attempts))}
    groups = {each.task: each.group if each.group >= 0 else order[each.task] for each in attempts}
    found: dict[AttemptId, Path] = {}
    for attempt in _records(attempts):
        prefix = trajectory_id(groups[attempt.task], attempt.number, name)
        if made := sorted((path / "terminals").glob(f"{prefix}-a*.cast")):
            found[attempt] = made[-1]
    return found


def _existing(files: Mapping[AttemptId, Path]) -> dict[AttemptId, Path]:
    return {attempt: file for attempt, file in files.items() if file.is_file()}
