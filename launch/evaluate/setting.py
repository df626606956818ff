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
from launch.config.load import Toml
from launch.rundir import config_values, write_json
from protocol.errors import UserError
from protocol.events import Json

SETTING_FILE = "setting.json"


@dataclass(frozen=True, slots=True)
class Setting:
    config: RunConfig
    tasks: str
    """A path, or a label of ``datasets``."""
    datasets: Path


def setting_of(config: RunConfig, tasks: str, datasets: Path) -> Setting:
    """Paths become absolute, so that they hold wherever they are read."""
    place = str(Path(tasks).absolute()) if Path(tasks).exists() else tasks
    return Setting(config, place, datasets.absolute())


def write_setting(folder: Path, setting: Setting) -> None:
    config = cast("Json", config_values(setting.config))
    write_json(folder / SETTING_FILE, {"tasks": setting.tasks, "datasets": str(setting.datasets), "config": config})


def read_setting(folder: Path) -> Setting:
    """Raises UserError where there is none, or it is no setting any more."""
    file = folder / SETTING_FILE
    mend = f"give the evaluation's own command again, which writes it: {shlex.join(_command(folder))}"
    try:
        said = cast("dict[str, object]", orjson.loads(file.read_bytes()))
        config = resolve(cast("dict[str, dict[str, Toml]]", said["config"]), source=str(file))
        return Setting(config, str(said["tasks"]), Path(str(said["datasets"])))
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): {mend}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is no evaluation's setting ({error}): {mend}") from error


def _command(folder: Path) -> list[str]:
    return ["python", "-m", "launch.evaluate", "…", "--output", str(folder)]
