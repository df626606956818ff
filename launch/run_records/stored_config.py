"""The configuration in a run's record: reading it, and what a resume may change in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from launch.config import RunConfig, SftConfig, resolve, resolve_sft
from launch.config.loader import Toml, flatten_tables
from launch.run_records.run_lock import directory_error
from protocol.cli.output import display_path
from protocol.errors import UserError
from protocol.run_directory.layout import (
    CONFIG_FILE,
    SFT_TABLE,
    SUMMARY_FILE,
    NoSuchRunError,
    RunDirectoryError,
    resume_command,
)
from protocol.run_directory.plain_files import require_plain_files
from protocol.settings import ConfigSection

_ENDED_BY_REQUEST = ("drained", "stopped_by_request")
"""Endings in a summary of a run that a person ended: :class:`launch.control.step_hooks.StopReason`."""


def find_resume_command(path: Path) -> str:
    """Return the command that resumes a run."""
    try:
        return resume_command(path, supervised=SFT_TABLE in load_stored_tables(path))
    except UserError:
        return resume_command(path)


def load_resumed_config(run_dir: Path, overrides: Sequence[str]) -> RunConfig:
    """Return a run's stored configuration with ``overrides``.  Raises RunDirectoryError for changes that its
    checkpoints do not allow, and if the run's directory holds anything but files and folders."""
    with suppress(OSError):  # opening the run says what is wrong with a folder that cannot be listed
        require_plain_files(run_dir)
    before = load_stored_config(run_dir)
    after = resolve(config_tables(before), overrides, source=f"run {run_dir.name}")
    require_unchanged(run_dir, before, after, is_fixed_key)
    if flat_config(after) == flat_config(before) and has_ended(run_dir):
        raise RunDirectoryError(
            f"run {run_dir.name} has ended ({display_path(run_dir / SUMMARY_FILE)} has the result): to train it "
            f"further, set more than its {before.run.steps} steps (--steps N, and --set stop.… if a stop condition "
            "ended it)"
        )
    return after


def has_ended(run_dir: Path) -> bool:
    """Return whether the run has reached its own end; one that a person ended with ``longshore ctl`` may go on."""
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
    old, new = flat_config(before), flat_config(after)
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
    "kl.reference",
    "agent.temperature",  # of the log-probabilities in the journal
    "staleness.max_staleness",  # the bound that the trained tokens are held against
    "evaluation.tasks_per_family",  # which tasks of a folder are not trained
)
"""Keys that a checkpoint's tasks, tokens and groups depend on; a trailing dot means the whole table."""


def is_fixed_key(key: str) -> bool:
    """Return whether ``section.key`` is fixed once a run has started."""
    return any(key.startswith(fixed) if fixed.endswith(".") else key == fixed for fixed in _FIXED)


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
        raise RunDirectoryError(f"{path} is not a supervised training run: {resume_command(path)}")
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
        why = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise RunDirectoryError(
            f"{file} is not a run's record ({why}): name another run; `longshore runs list` lists them"
        ) from error


def config_tables(config: ConfigSection) -> dict[str, dict[str, Toml]]:
    """Return a configuration as the tables of a recipe."""
    return config.model_dump(mode="json", exclude_none=True)


def flat_config(config: ConfigSection) -> dict[str, Toml]:
    """Return a configuration as ``section.key`` → value."""
    return flatten_tables(config_tables(config))
