"""The models of finished warm starts, kept below the folder of all runs for the next run with the same inputs.

This module loads no Ray: a command looks here before Ray's environment is set.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson

from launch.config import RunConfig
from launch.run_records.run_directory import config_tables
from learner.models.qwen import WEIGHTS_FILE, WEIGHTS_INDEX_FILE
from learner.settings import LearnerSettings, TrainerSettings
from protocol.files.digests import digest_file
from protocol.run_directory.trajectory_export import TRAJECTORIES_FOLDER

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = (
    "constraints.txt",
    "launch/demo/**/*.py",
    "launch/actor_group/learner_group.py",
    "launch/data/*.py",
    "sandbox/tasks/**/*.py",
    "sandbox/tools/**/*.py",
    "actors/agents/**/*.py",
    "learner/**/*.py",
    "protocol/**/*.py",
)
_REWARD_KEYS = LearnerSettings.model_fields.keys() - TrainerSettings.model_fields.keys()
_NOT_READ = _REWARD_KEYS | {"lr", "lr_end", "lr_warmup_steps", "call_timeout_s"}
"""Keys of the learner that the warm start's weights do not depend on."""


def warm_start_cache_key(config: RunConfig) -> str:
    """Digest of configuration and code that a warm start depends on."""
    values = config_tables(config)
    learner = {key: value for key, value in values["learner"].items() if key not in _NOT_READ}
    digest = hashlib.sha256(
        orjson.dumps(
            [
                *(values["model"], values["warm_start"], values["data"], values["agent"], learner, config.run.seed),
                *(_folder_state(config.model.path), [_content(path) for path in config.warm_start.data]),
            ],
            option=orjson.OPT_SORT_KEYS,
        )
    )
    for file in sorted(path for source in _SOURCES for path in _ROOT.glob(source)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:20]


def _folder_state(model: Path | None) -> list[list[object]]:
    """What of a model's folder changes whenever a file of it does.  Its weights are too large to be read for that."""
    files = sorted(path for path in model.iterdir() if path.is_file()) if model is not None else []
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]


def _content(source: Path) -> list[str]:
    """Checksums of a file, or of what a run exported."""
    files = sorted((source / TRAJECTORIES_FOLDER).iterdir()) if source.is_dir() else [source]
    return [digest_file(path).xxh3 for path in files]


def find_cached_model(config: RunConfig) -> Path | None:
    """The finished model of an earlier warm start with the same inputs."""
    folder = warm_start_folder(config)
    return folder if any((folder / name).exists() for name in (WEIGHTS_INDEX_FILE, WEIGHTS_FILE)) else None


def warm_start_folder(config: RunConfig) -> Path:
    """Where the model of a finished warm start of ``config`` is kept."""
    return config.run.dir / ".cache" / f"warm-start-{warm_start_cache_key(config)}"
