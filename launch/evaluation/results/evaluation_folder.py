"""The folder of an evaluation: what is evaluated, and an append-only file of its attempts.

A standalone evaluation has a folder of its own; a run keeps one for each of its evaluations
(:mod:`launch.evaluation.held_out.evaluation_store`).  Both have the first two files:

    evaluation.json        the specification: everything that the score depends on
    attempts.jsonl         one line per attempt, whole or not there; everything below is made from it
    settings.json          the whole configuration, and the path of the tasks
    results.csv  evaluated_tasks.csv  summary.json  report.html
    terminals/             recordings of the attempts, unless --no-record
    trajectories.jsonl     with --save-trajectories, and for SWE-SYNTH's bugs and tasks of the web:
    samples.jsonl          their samples (:mod:`launch.evaluation.results.swe_synth_samples`, ``liveweb_samples``)

One process at a time has a folder.  The same command continues an evaluation; a folder of other weights, another agent
or other tasks is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
import orjson
from pydantic import TypeAdapter, ValidationError

from launch.run_records.output_folder import is_output_folder, open_output_folder
from launch.run_records.run_directory import RunDirectory, write_json
from protocol.errors import UserError
from protocol.evaluation import ATTEMPTS_FILE, AttemptFile, AttemptId, AttemptRecord, latest_records, read_attempts
from protocol.events import JsonValue
from protocol.files.filesystem import append_atomically, cut_torn_line, replace_file

SPEC_FILE, TRAJECTORIES_FILE, SAMPLES_FILE = "evaluation.json", "trajectories.jsonl", "samples.jsonl"
TERMINALS_FOLDER = "terminals"
EVALUATIONS_FOLDER = Path("evaluations")
"""Default parent of standalone evaluations' folders; in a run's directory, of the run's."""


ScoreSetting = str | int | float | bool
"""Value of a configuration key; lists and tables are stored as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSpec:
    """Specification of an evaluation: everything that the score depends on."""

    solver: str
    """``served``, ``url``, ``oracle``, ``noop``, or ``run`` for a run's own evaluation."""
    model: str = ""
    """Folder, URL, or id of the run."""
    model_name: str = ""
    temperature: float = 1.0
    greedy: bool = False
    seed: int = 0
    prompt: str = ""
    prompt_checksum: str = ""
    tasks: str = ""
    """Data set, for people."""
    tasks_checksum: str = ""
    recipe: Mapping[str, ScoreSetting] = field(default_factory=dict[str, ScoreSetting])
    """Configuration keys that the score depends on."""
    name: str = ""
    """Name of a run's own evaluation: ``before``, ``step-000008``, ``after``."""
    step: int = 0
    """Optimizer step of a run's weights."""
    version: int = -1
    """Version of a run's weights."""
    weights_sha256: str = ""
    """Checksum of a run's weights."""

    @property
    def sampling(self) -> str:
        """Sampling of the replies, for people."""
        return "greedy" if self.greedy else f"temperature {self.temperature}"


_SPEC = TypeAdapter(EvaluationSpec)


class EvaluationFolder:
    """An open folder; see :func:`open_evaluation_folder`."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory, self.path = directory, directory.path
        self._attempts = AttemptFile(self.path / ATTEMPTS_FILE)
        self.records: dict[AttemptId, AttemptRecord] = read_attempts(self.path / ATTEMPTS_FILE)
        """The latest record of each attempt."""

    def add_record(self, record: AttemptRecord) -> None:
        """Append a record.  Raises OSError; then it does not count."""
        self._attempts.append(record)
        before = self.records.get(record.attempt_id)
        self.records |= latest_records([record] if before is None else [before, record])

    def add_trajectory(self, value: Mapping[str, JsonValue]) -> None:
        append_atomically(self.path / TRAJECTORIES_FILE, msgspec.json.encode(value) + b"\n")

    def add_sample(self, value: Mapping[str, JsonValue]) -> None:
        append_atomically(self.path / SAMPLES_FILE, msgspec.json.encode(value) + b"\n")

    def write_text(self, name: str, text: str) -> None:
        replace_file(self.path / name, text.encode())


@contextmanager
def open_evaluation_folder(path: Path, spec: EvaluationSpec) -> Generator[EvaluationFolder]:
    """Open ``path`` for the evaluation of ``spec``, creating it if needed.  Raises UserError if it is another's."""
    with open_output_folder(path, lambda: check_evaluation_folder(path, spec)) as directory:
        write_spec(path, spec)
        for name in (TRAJECTORIES_FILE, SAMPLES_FILE):
            cut_torn_line(path / name)
        yield EvaluationFolder(directory)


def read_attempt_records(path: Path) -> dict[AttemptId, AttemptRecord]:
    """Return the attempts of a folder, which may have none.  Raises UserError for a damaged line."""
    return read_attempts(path / ATTEMPTS_FILE)


def is_evaluation(path: Path) -> bool:
    return (path / SPEC_FILE).is_file()


def read_spec(path: Path) -> EvaluationSpec:
    """Return what the folder evaluates.  Raises UserError if it is no evaluation."""
    file = path / SPEC_FILE
    try:
        return _SPEC.validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise UserError(f"{file} is not readable ({why}): choose another folder, --output FOLDER") from error


def write_spec(path: Path, spec: EvaluationSpec) -> None:
    write_json(path / SPEC_FILE, asdict(spec))


def check_evaluation_folder(path: Path, spec: EvaluationSpec) -> None:
    """Raise UserError unless ``spec`` may be evaluated into ``path``."""
    if is_output_folder(path, SPEC_FILE, "an evaluation"):
        _require_same(path, spec)


def _require_same(path: Path, spec: EvaluationSpec) -> None:
    before, now = asdict(read_spec(path)), asdict(spec)
    if other := [key for key in now if before[key] != now[key]]:
        raise UserError(
            f"{path} is the evaluation of another {', '.join(_difference(key, before, now) for key in other[:3])}: "
            "give what it had to continue it, --output FOLDER to write elsewhere, or remove it "
            f"(rm -r {shlex.quote(str(path))}) to start over"
        )


def _difference(key: str, before: Mapping[str, JsonValue], now: Mapping[str, JsonValue]) -> str:
    """Describe a key that differs; of a table only its first one."""
    old, new = before.get(key), now.get(key)
    if isinstance(old, dict) and isinstance(new, dict):
        inner = next(each for each in sorted(old.keys() | new.keys()) if old.get(each) != new.get(each))
        return _difference(inner, old, new)
    return f"{key} ({_short(old)}, not {_short(new)})"


def _short(value: JsonValue) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:28]}…{text[-28:]}"
