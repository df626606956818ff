"""An evaluation's folder: what is evaluated, and an append-only file of what each attempt came to.

One process has it at a time.  A line is there whole or not at all, so that the same command goes on wherever an earlier
one ended.  A folder is of one evaluation: other weights, another agent or other tasks are refused.

    evaluation.json        what is evaluated
    setting.json           where and how: the whole configuration, the tasks' place
    attempts.jsonl         the truth; what follows is made of it
    results.csv  evaluated_tasks.csv  summary.json  report.html
    terminals/             each attempt's recording, unless --no-record
    trajectories.jsonl     with --save-trajectories
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import orjson
from pydantic import TypeAdapter, ValidationError

from launch.evaluate.attempts import AttemptId, Record, newest
from launch.rundir import RunDirectory
from protocol.errors import UserError
from protocol.events import Json
from protocol.filesystem import append_whole, cut_torn_line, replace_whole

WHAT_FILE, ATTEMPTS_FILE, TRAJECTORIES_FILE = "evaluation.json", "attempts.jsonl", "trajectories.jsonl"
TERMINALS = "terminals"
EVALUATIONS = Path("evaluations")
"""Where folders are that nobody has given another place."""
_BEGUN = {"attempts", ".lock"}
"""What is there of a folder that was opened and not yet written to."""
_RECORD = TypeAdapter(Record)


class EvaluationFolder:
    """One that is open: :func:`opened`."""

    def __init__(self, directory: RunDirectory, done: dict[AttemptId, Record]) -> None:
        self.directory, self.path = directory, directory.path
        self.done = done
        """What each attempt has come to."""

    def add(self, record: Record) -> None:
        """Raises OSError, and then the attempt is none."""
        append_whole(self.path / ATTEMPTS_FILE, _RECORD.dump_json(record) + b"\n")
        before = self.done.get(record.id)
        self.done |= newest([record] if before is None else [before, record])

    def add_trajectory(self, value: Mapping[str, Json]) -> None:
        append_whole(self.path / TRAJECTORIES_FILE, orjson.dumps(dict(value)) + b"\n")

    def write(self, name: str, text: str) -> None:
        replace_whole(self.path / name, text.encode())


@contextmanager
def opened(path: Path, what: Mapping[str, Json]) -> Generator[EvaluationFolder]:
    """``path``, made where it is not there, for the evaluation of ``what``.  Raises UserError where it is another's."""
    check(path, what)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {path}: {error.strerror}; choose another place, --output FOLDER") from error
    with RunDirectory.open(path) as directory:
        check(path, what)  # nobody else writes into it any more
        directory.write_json(WHAT_FILE, what)
        for name in (ATTEMPTS_FILE, TRAJECTORIES_FILE):
            cut_torn_line(path / name)
        yield EvaluationFolder(directory, read_attempts(path))


def read_attempts(path: Path) -> dict[AttemptId, Record]:
    """Of a folder that may have none.  Raises UserError for a file that nobody of us wrote."""
    file = path / ATTEMPTS_FILE
    found: list[Record] = []
    for number, line in enumerate(file.read_bytes().splitlines() if file.exists() else [], 1):
        try:
            found.append(_RECORD.validate_json(line))
        except ValidationError as error:
            raise UserError(
                f"{file}:{number} is no attempt of an evaluation: remove the line, whose attempt is run again then"
            ) from error
    return newest(found)


def read_what(path: Path) -> dict[str, Json]:
    """What is evaluated into ``path``: nothing of a folder that was not opened yet.  Raises UserError."""
    file = path / WHAT_FILE
    try:
        return cast("dict[str, Json]", orjson.loads(file.read_bytes())) if file.exists() else {}
    except ValueError as error:
        raise UserError(f"{file} is not readable ({error}): choose another folder, --output FOLDER") from error


def check(path: Path, what: Mapping[str, Json]) -> None:
    """Raises UserError unless ``what`` may be evaluated into ``path``."""
    if (path / WHAT_FILE).exists():
        _require_same(path, what)
    elif path.exists() and (not path.is_dir() or any(each.name not in _BEGUN for each in path.iterdir())):
        raise UserError(f"{path} holds something else than an evaluation: choose another folder, --output FOLDER")


def _require_same(path: Path, what: Mapping[str, Json]) -> None:
    before = read_what(path)
    now = cast("dict[str, Json]", orjson.loads(orjson.dumps(dict(what))))
    if other := [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]:
        raise UserError(
            f"{path} is the evaluation of another {', '.join(_difference(key, before, now) for key in other[:3])}: "
            "give what it had to go on with it, --output FOLDER to write elsewhere, or remove it "
            f"(rm -r {shlex.quote(str(path))}) to begin anew"
        )


def _difference(key: str, before: Mapping[str, Json], now: Mapping[str, Json]) -> str:
    """Of a table only the first key that differs."""
    old, new = before.get(key), now.get(key)
    if isinstance(old, dict) and isinstance(new, dict):
        inner = next(each for each in sorted(old.keys() | new.keys()) if old.get(each) != new.get(each))
        return _difference(inner, old, new)
    return f"{key} ({_short(old)}, not {_short(new)})"


def _short(value: Json) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:28]}…{text[-28:]}"
