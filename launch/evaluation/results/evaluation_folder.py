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

from launch.evaluation.attempts import AttemptId, AttemptRecord, latest_records
from launch.run_records.run_directory import RunDirectory
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.files.filesystem import append_atomically, cut_torn_line, replace_file

SPEC_FILE, ATTEMPTS_FILE, TRAJECTORIES_FILE = "evaluation.json", "attempts.jsonl", "trajectories.jsonl"
TERMINALS_FOLDER = "terminals"
EVALUATIONS_FOLDER = Path("evaluations")
"""Where folders are that nobody has given another place."""
_NEW_FOLDER_ENTRIES = {"attempts", ".lock"}
"""What is there of a folder that was opened and not yet written to."""
_RECORD = TypeAdapter(AttemptRecord)


class EvaluationFolder:
    """One that is open: :func:`opened`."""

    def __init__(self, directory: RunDirectory, done: dict[AttemptId, AttemptRecord]) -> None:
        self.directory, self.path = directory, directory.path
        self.records = done
        """What each attempt has come to."""

    def add_record(self, record: AttemptRecord) -> None:
        """Raises OSError, and then the attempt is none."""
        append_atomically(self.path / ATTEMPTS_FILE, _RECORD.dump_json(record) + b"\n")
        before = self.records.get(record.attempt_id)
        self.records |= latest_records([record] if before is None else [before, record])

    def add_trajectory(self, value: Mapping[str, JsonValue]) -> None:
        append_atomically(self.path / TRAJECTORIES_FILE, orjson.dumps(dict(value)) + b"\n")

    def write_text(self, name: str, text: str) -> None:
        replace_file(self.path / name, text.encode())


@contextmanager
def open_evaluation_folder(path: Path, what: Mapping[str, JsonValue]) -> Generator[EvaluationFolder]:
    """``path``, made where it is not there, for the evaluation of ``what``.  Raises UserError where it is another's."""
    check_evaluation_folder(path, what)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {path}: {error.strerror}; choose another place, --output FOLDER") from error
    with RunDirectory.open(path) as directory:
        check_evaluation_folder(path, what)  # nobody else writes into it any more
        directory.write_json(SPEC_FILE, what)
        for name in (ATTEMPTS_FILE, TRAJECTORIES_FILE):
            cut_torn_line(path / name)
        yield EvaluationFolder(directory, read_attempt_records(path))


def read_attempt_records(path: Path) -> dict[AttemptId, AttemptRecord]:
    """Of a folder that may have none.  Raises UserError for a file that nobody of us wrote."""
    file = path / ATTEMPTS_FILE
    found: list[AttemptRecord] = []
    for number, line in enumerate(file.read_bytes().splitlines() if file.exists() else [], 1):
        try:
            found.append(_RECORD.validate_json(line))
        except ValidationError as error:
            raise UserError(
                f"{file}:{number} is no attempt of an evaluation: remove the line, whose attempt is run again then"
            ) from error
    return latest_records(found)


def read_spec(path: Path) -> dict[str, JsonValue]:
    """What is evaluated into ``path``: nothing of a folder that was not opened yet.  Raises UserError."""
    file = path / SPEC_FILE
    try:
        return cast("dict[str, JsonValue]", orjson.loads(file.read_bytes())) if file.exists() else {}
    except ValueError as error:
        raise UserError(f"{file} is not readable ({error}): choose another folder, --output FOLDER") from error


def check_evaluation_folder(path: Path, what: Mapping[str, JsonValue]) -> None:
    """Raises UserError unless ``what`` may be evaluated into ``path``."""
    if (path / SPEC_FILE).exists():
        _require_same(path, what)
    elif path.exists() and (not path.is_dir() or any(each.name not in _NEW_FOLDER_ENTRIES for each in path.iterdir())):
        raise UserError(f"{path} holds something else than an evaluation: choose another folder, --output FOLDER")


def _require_same(path: Path, what: Mapping[str, JsonValue]) -> None:
    before = read_spec(path)
    now = cast("dict[str, JsonValue]", orjson.loads(orjson.dumps(dict(what))))
    if other := [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]:
        raise UserError(
            f"{path} is the evaluation of another {', '.join(_difference(key, before, now) for key in other[:3])}: "
            "give what it had to go on with it, --output FOLDER to write elsewhere, or remove it "
            f"(rm -r {shlex.quote(str(path))}) to begin anew"
        )


def _difference(key: str, before: Mapping[str, JsonValue], now: Mapping[str, JsonValue]) -> str:
    """Of a table only the first key that differs."""
    old, new = before.get(key), now.get(key)
    if isinstance(old, dict) and isinstance(new, dict):
        inner = next(each for each in sorted(old.keys() | new.keys()) if old.get(each) != new.get(each))
        return _difference(inner, old, new)
    return f"{key} ({_short(old)}, not {_short(new)})"


def _short(value: JsonValue) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:28]}…{text[-28:]}"
