"""Cache of the models of finished warm starts, below the folder of all runs, for later runs with the same inputs.

This module does not load Ray: a command reads the cache before Ray's environment is set.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson

from launch.config import RunConfig
from launch.run_records.stored_config import config_tables
from learner.models.qwen import WEIGHTS_FILE, WEIGHTS_INDEX_FILE
from learner.settings import LearnerSettings, TrainerSettings
from protocol.files.digests import digest_file
from protocol.run_directory.trajectory_export import TRAJECTORIES_FOLDER

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = (
    "constraints.txt",
    "launch/actor_group/learner_group.py",
    "launch/data/**/*.py",
    "sandbox/tasks/**/*.py",
    "sandbox/tools/**/*.py",
    "actors/agents/**/*.py",
    "learner/**/*.py",
    "protocol/**/*.py",
)
_REWARD_KEYS = LearnerSettings.model_fields.keys() - TrainerSettings.model_fields.keys()
_IGNORED_KEYS = _REWARD_KEYS | {"lr", "lr_end", "lr_warmup_steps", "call_timeout_s"}
"""Keys of ``[learner]`` that do not affect the warm start."""


def warm_start_cache_key(config: RunConfig) -> str:
    """Return the digest of the configuration and code that a warm start depends on."""
    values = config_tables(config)
    learner = {key: value for key, value in values["learner"].items() if key not in _IGNORED_KEYS}
    digest = hashlib.sha256(
        orjson.dumps(
            [
                *(values["model"], values["warm_start"], values["data"], values["agent"], learner, config.run.seed),
                *(_folder_state(config.model.path), [_checksums(path) for path in config.warm_start.data]),
            ],
            option=orjson.OPT_SORT_KEYS,
        )
    )
    for file in sorted(path for source in _SOURCES for path in _ROOT.glob(source)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:20]


def _folder_state(model: Path | None) -> list[list[object]]:
    """Return names, sizes and times of a model's files; its weights are too large to be read."""
    files = sorted(path for path in model.iterdir() if path.is_file()) if model is not None else []
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]


def _checksums(source: Path) -> list[str]:
    """Return the checksums of a file, or of a run's exported trajectories."""
    files = sorted((source / TRAJECTORIES_FOLDER).iterdir()) if source.is_dir() else [source]
    return [digest_file(path).xxh3 for path in files]


def find_cached_model(config: RunConfig) -> Path | None:
    """Return the model of an earlier warm start with the same inputs; None if there is none."""
    folder = warm_start_folder(config)
    return folder if any((folder / name).exists() for name in (WEIGHTS_INDEX_FILE, WEIGHTS_FILE)) else None


def warm_start_folder(config: RunConfig) -> Path:
    """Return the folder of the model of a warm start of ``config``."""
    return config.run.dir / ".cache" / f"warm-start-{warm_start_cache_key(config)}"
