"""settings.json: the whole configuration of an evaluation and the path of its tasks, with which replay runs an attempt
again.

``evaluation.json`` has only what a score depends on; this has the rest too, of the last command.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson

from launch.config import RunConfig, resolve
from launch.config.loader import Toml
from launch.run_records.run_directory import write_json
from launch.run_records.stored_config import config_tables
from protocol.errors import UserError
from protocol.events import JsonValue

SETTINGS_FILE = "settings.json"


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    config: RunConfig
    tasks: str
    """Path, or label of ``datasets``."""
    datasets: Path


def build_evaluation_settings(config: RunConfig, tasks: str, datasets: Path) -> EvaluationSettings:
    """Return settings with absolute paths, which are valid from any folder."""
    path = str(Path(tasks).absolute()) if Path(tasks).exists() else tasks
    return EvaluationSettings(config, path, datasets.absolute())


def write_evaluation_settings(folder: Path, settings: EvaluationSettings) -> None:
    config = cast("JsonValue", config_tables(settings.config))
    write_json(folder / SETTINGS_FILE, {"tasks": settings.tasks, "datasets": str(settings.datasets), "config": config})


def read_evaluation_settings(folder: Path) -> EvaluationSettings:
    """Raises UserError if the file is missing or damaged."""
    file = folder / SETTINGS_FILE
    fix = f"repeat the evaluation's command, which writes it: longshore evaluate … --output {shlex.quote(str(folder))}"
    try:
        stored = cast("dict[str, object]", orjson.loads(file.read_bytes()))
        config = resolve(cast("dict[str, dict[str, Toml]]", stored["config"]), source=str(file))
        return EvaluationSettings(config, str(stored["tasks"]), Path(str(stored["datasets"])))
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): {fix}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} has no settings of an evaluation ({error}): {fix}") from error
