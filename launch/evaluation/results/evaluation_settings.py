"""setting.json: where and how an evaluation's attempts were run, for what runs one of them again.

Beside ``evaluation.json``, which holds what a score depends on, it has the rest of the configuration (deadlines, say)
and where the tasks lie.  It is that of the last command.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson

from launch.config import RunConfig, resolve
from launch.config.loader import Toml
from launch.run_records.run_directory import config_tables, write_json
from protocol.errors import UserError
from protocol.events import JsonValue

SETTINGS_FILE = "setting.json"


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    config: RunConfig
    tasks: str
    """A path, or a label of ``datasets``."""
    datasets: Path


def build_evaluation_settings(config: RunConfig, tasks: str, datasets: Path) -> EvaluationSettings:
    """Paths become absolute, so that they hold wherever they are read."""
    place = str(Path(tasks).absolute()) if Path(tasks).exists() else tasks
    return EvaluationSettings(config, place, datasets.absolute())


def write_evaluation_settings(folder: Path, setting: EvaluationSettings) -> None:
    config = cast("JsonValue", config_tables(setting.config))
    write_json(folder / SETTINGS_FILE, {"tasks": setting.tasks, "datasets": str(setting.datasets), "config": config})


def read_evaluation_settings(folder: Path) -> EvaluationSettings:
    """Raises UserError where there is none, or it is no setting any more."""
    file = folder / SETTINGS_FILE
    mend = f"give the evaluation's own command again, which writes it: {shlex.join(_command(folder))}"
    try:
        said = cast("dict[str, object]", orjson.loads(file.read_bytes()))
        config = resolve(cast("dict[str, dict[str, Toml]]", said["config"]), source=str(file))
        return EvaluationSettings(config, str(said["tasks"]), Path(str(said["datasets"])))
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): {mend}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is no evaluation's setting ({error}): {mend}") from error


def _command(folder: Path) -> list[str]:
    return ["python", "-m", "launch.evaluate", "…", "--output", str(folder)]
