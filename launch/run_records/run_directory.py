"""A run's directory as its driver uses it: one driver at a time, a new attempt at each start, files written whole.

``runs/<id>/`` holds ``config.json`` (see :mod:`launch.run_records.reproducibility`), ``attempts/<n>/logs/`` and the
files of other modules, whose names are in :mod:`protocol.run_directory.layout`.  The driver holds a lock on it, which
the kernel releases however the driver ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shlex
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from launch.config import NegativeControl, RunConfig, SftConfig, resolve, resolve_sft
from launch.config.loader import Toml
from protocol.cli.output import display_path
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.files.filesystem import replace_file
from protocol.run_directory.layout import (
    CONFIG_FILE,
    LOCK_FILE,
    REPORT_FILE,
    RUN_ID_PATTERN,
    SFT_TABLE,
    SUMMARY_FILE,
    NoSuchRunError,
    RunDirectoryError,
    resume_command,
)
from protocol.run_directory.process_log import ProcessLog
from protocol.settings import ConfigSection

_ENDED_BY_REQUEST = ("drained", "stopped_by_request")
"""Endings in a summary of a run that a person ended: :class:`launch.control.step_hooks.TrainingEnding`."""


class RunDirectory:
    """An open run directory, locked until it is closed."""

    def __init__(self, path: Path, attempt: int, lock_fd: int) -> None:
        self.path = path
        self.attempt = attempt
        """Number of this start of the run, 1 for the first."""
        self._lock_fd = lock_fd

    @classmethod
    def create(cls, parent: Path, name: str, run_id: str | None = None, *, now: float | None = None) -> RunDirectory:
        """Make a new run's directory, by default ``<name>-<start time>``, and open it.  Raises RunDirectoryError."""
        if run_id is not None:
            require_new_run(parent, run_id)
        started = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
        base = run_id or f"{name}-{started}"
        for count in range(1, 1000):
            path = parent / (base if count == 1 else f"{base}-{count}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                if run_id is None:
                    continue
                raise _exists(path) from None
            except OSError as error:
                raise RunDirectoryError(
                    f"cannot make {path}: {error.strerror}; set another place, --set run.dir=FOLDER"
                ) from error
            return cls.open(path)
        raise RunDirectoryError(f"{parent / base} and 998 more exist: give this run a name (--run-id)")

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Start an attempt in a run's directory.  Raises RunDirectoryError if another driver or another user has it."""
        try:
            lock_fd = _lock(path / LOCK_FILE)
            before = [int(entry.name) for entry in path.glob("attempts/*") if entry.name.isdigit()]
            opened = cls(path.absolute(), max(before, default=0) + 1, lock_fd)
            opened.logs.mkdir(parents=True)
        except OSError as error:
            raise directory_error(path, error) from error
        return opened

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def logs(self) -> Path:
        """Folder of this attempt's logs."""
        return self.path / "attempts" / str(self.attempt) / "logs"

    def logs_in(self, folder: Path) -> Path:
        """Return the folder of this attempt's logs on a machine where ``folder`` replaces the run's directory."""
        return folder / self.logs.relative_to(self.path)

    def process_log(self, writer: str, node: str, folder: Path | None = None) -> ProcessLog:
        """Return the log of one process of this attempt, on a machine where ``folder`` replaces the run's directory."""
        return ProcessLog(self.logs_in(folder or self.path) / f"{writer}.jsonl", self.run_id, writer, node)

    def archive_results(self) -> None:
        """Move the results of the previous attempt to its folder: a resumed run has not ended."""
        for name in (SUMMARY_FILE, REPORT_FILE):
            with contextlib.suppress(FileNotFoundError):
                (self.path / name).replace(self.path / "attempts" / str(self.attempt - 1) / name)

    def write_json(self, name: str, value: Mapping[str, JsonValue]) -> Path:
        """Write a file of the run atomically, also in case of a power loss, and return its path."""
        path = self.path / name
        write_json(path, value)
        return path

    def close(self) -> None:
        """Release the lock.  May be called twice."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def require_new_run(parent: Path, run_id: str) -> None:
    """Raise RunDirectoryError unless a new run can have this id."""
    if not RUN_ID_PATTERN.fullmatch(run_id):
        raise RunDirectoryError(f"'{run_id}' cannot be a run id: use letters, digits, '.', '_' and '-'")
    if (parent / run_id).exists():
        raise _exists(parent / run_id)


def _exists(path: Path) -> RunDirectoryError:
    another = "give this one another name (--run-id NAME), or leave --run-id out for a new one"
    if (path / CONFIG_FILE).exists():
        return RunDirectoryError(
            f"{path} exists, and no run is overwritten: go on with that run (`{find_resume_command(path)}`), {another}"
        )
    return RunDirectoryError(
        f"{path} exists and is no run that could go on: remove it (`rm -r {shlex.quote(str(path))}`), {another}"
    )


def find_resume_command(path: Path) -> str:
    """Return the command that resumes a run."""
    try:
        return resume_command(path, supervised=SFT_TABLE in load_stored_tables(path))
    except UserError:
        return resume_command(path)


def find_run(parent: Path, run_id: str) -> Path:
    """Return a run's directory by its id.  Raises RunDirectoryError."""
    known = list_runs(parent)
    for path in known:
        if path.name == run_id:
            return path
    close = did_you_mean(run_id, [path.name for path in known])
    raise RunDirectoryError(f"no run called '{run_id}' in {parent}: leave --resume out to start one{close}")


def find_newest_run(parent: Path, name: str, control: NegativeControl | None, overrides: Sequence[str] = ()) -> Path:
    """Return the newest run that can be resumed with ``overrides``, of recipe ``name`` unless that is empty and of
    ``control`` unless that is None.  Raises RunDirectoryError that says why the newest cannot."""
    refused: RunDirectoryError | None = None
    for path in reversed(list_runs(parent)):
        try:
            run = load_stored_config(path).run
        except UserError:
            continue
        if (name and run.name != name) or (control is not None and run.negative_control is not control):
            continue
        try:
            load_resumed_config(path, overrides)
        except RunDirectoryError as error:
            refused = refused or error
        else:
            return path
    if refused is not None:
        raise refused
    which = f"of recipe '{name}'" if name else "at all"
    raise RunDirectoryError(f"no run {which} in {parent}: leave --resume out to start one")


def list_runs(parent: Path) -> list[Path]:
    """Return the run directories in a folder, the newest last."""
    return sorted(
        (path for path in parent.glob("*") if (path / CONFIG_FILE).is_file()),
        key=lambda path: (path / CONFIG_FILE).stat().st_mtime_ns,
    )


def load_resumed_config(run_dir: Path, overrides: Sequence[str]) -> RunConfig:
    """Return a run's stored configuration with ``overrides``.  Raises RunDirectoryError for changes that its
    checkpoints do not allow."""
    before = load_stored_config(run_dir)
    after = resolve(config_tables(before), overrides, source=f"run {run_dir.name}")
    require_unchanged(run_dir, before, after, is_fixed_key)
    if _flat_values(after) == _flat_values(before) and has_ended(run_dir):
        raise RunDirectoryError(
            f"run {run_dir.name} has ended ({display_path(run_dir / SUMMARY_FILE)} has the result): to train it "
            f"further, set more than its {before.run.steps} steps (--steps N, and --set stop.… if a stop condition "
            "ended it)"
        )
    return after


def has_ended(run_dir: Path) -> bool:
    """Return whether the run has reached its own end; one that a person ended with ``launch.control.ctl`` may go on."""
    try:
        return orjson.loads((run_dir / SUMMARY_FILE).read_bytes()).get("ended") not in _ENDED_BY_REQUEST
    except FileNotFoundError:
        return False
    except (OSError, ValueError, AttributeError):
        return True


def require_unchanged(
    run_dir: Path, before: ConfigSection, after: ConfigSection, is_fixed: Callable[[str], bool]
) -> None:
    """Raise RunDirectoryError if keys differ that are fixed once a run has started."""
    old, new = _flat_values(before), _flat_values(after)
    if fixed := [key for key in sorted(old.keys() | new.keys()) if is_fixed(key) and old.get(key) != new.get(key)]:
        raise RunDirectoryError(
            f"run {run_dir.name} was started with another {', '.join(fixed)}, which its checkpoints depend on: "
            "leave that as it was, or start a new run without --resume"
        )


_FIXED = (
    *("run.seed", "run.name", "run.negative_control", "model.", "warm_start.", "data.", "lora."),
    *("rollout.groups_per_step", "rollout.group_size", "rollout.reward", "reward."),
    *("judge.enabled", "judge.model", "judge.prompt", "judge.votes", "judge.coefficient", "judge.target"),
    *("agent.kind", "agent.options", "agent.system_prompt", "agent.prompt", "agent.tools", "agent.toolset"),
    *("agent.thinking", "agent.history", "agent.history_head", "agent.done_text"),
    *("agent.context_tokens", "agent.harness"),
    "agent.temperature",  # of the log-probabilities in the journal
    "staleness.max_staleness",  # the bound that the trained tokens are held against
    "evaluation.tasks_per_family",  # which tasks of a folder are not trained
)
"""Keys that a checkpoint's tasks, tokens and groups depend on; a trailing dot means the whole table."""


def is_fixed_key(key: str) -> bool:
    """Return whether ``section.key`` is fixed once a run has started."""
    return any(key.startswith(fixed) if fixed.endswith(".") else key == fixed for fixed in _FIXED)


@contextlib.contextmanager
def hold_run_lock(run_dir: Path) -> Generator[None]:
    """Lock a run against drivers while the context is open.  Raises RunDirectoryError if a driver or another user has
    it."""
    try:
        fd = _lock(run_dir / LOCK_FILE)
    except OSError as error:
        raise directory_error(run_dir, error) from error
    try:
        yield
    finally:
        os.close(fd)


def write_json(path: Path, value: Mapping[str, JsonValue]) -> None:
    """Write a JSON file atomically."""
    replace_file(path, orjson.dumps(dict(value), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def load_stored_config(path: Path) -> RunConfig:
    """Return the configuration in a run's record.  Raises RunDirectoryError."""
    values = load_stored_tables(path)
    if SFT_TABLE in values:
        raise RunDirectoryError(f"{path} is supervised training: go on with {resume_command(path, supervised=True)}")
    return resolve(values, source=str(path / CONFIG_FILE))


def load_stored_sft_config(path: Path) -> SftConfig:
    """Return the configuration in the record of supervised training.  Raises RunDirectoryError."""
    values = load_stored_tables(path)
    if SFT_TABLE not in values:
        raise RunDirectoryError(f"{path} is no supervised training: {resume_command(path)}")
    return resolve_sft(values, source=str(path / CONFIG_FILE))


def load_stored_tables(path: Path) -> dict[str, dict[str, Toml]]:
    """Return the tables in a run's record.  Raises RunDirectoryError."""
    file = path / CONFIG_FILE
    try:
        record: dict[str, dict[str, dict[str, Toml]]] = orjson.loads(file.read_bytes())
        return {section: {**keys} for section, keys in record["config"].items()}
    except (FileNotFoundError, NotADirectoryError):
        raise NoSuchRunError(path) from None
    except OSError as error:
        raise directory_error(path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(
            f"{file} is no run's record ({error}): start a new run, longshore cluster NAME"
        ) from error


def directory_error(run_dir: Path, error: OSError) -> RunDirectoryError:
    """Return the error for a file of the run that cannot be read or written; usually the run is another user's."""
    problem = f"{error.filename or run_dir}: {error.strerror}"
    try:
        owner, me = _user(run_dir.stat().st_uid), _user(os.geteuid())
    except OSError:
        owner = me = ""
    if owner == me or not isinstance(error, PermissionError):
        return RunDirectoryError(f"{problem}: `ls -ld {run_dir}` and `df {run_dir}` show why")
    return RunDirectoryError(
        f"{problem}. {run_dir} belongs to {owner}, and you are {me}: run this command as {owner} (sudo), or take the "
        f"run over: sudo chown -R {me} {run_dir}"
    )


def _user(uid: int) -> str:
    """Return a user's name, or the number if there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def config_tables(config: ConfigSection) -> dict[str, dict[str, Toml]]:
    """Return a configuration as the tables of a recipe."""
    return config.model_dump(mode="json", exclude_none=True)


def _flat_values(config: ConfigSection) -> dict[str, Toml]:
    """Return a configuration as ``section.key`` → value."""
    return {f"{table}.{key}": value for table, keys in config_tables(config).items() for key, value in keys.items()}


def _lock(file: Path) -> int:
    """Take the lock and write this process's id to it.  Raises RunDirectoryError."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(fd, 64).decode().strip()
        os.close(fd)
        raise RunDirectoryError(
            f"{file.parent} is in use by process {owner}: wait for it or end it (kill -INT {owner}), then try again"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
