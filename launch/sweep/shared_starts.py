"""What runs begin with: weights and held-out tasks.  Those that begin alike need one warm start and one evaluation
before training between them.

Runs *ought to* begin alike where their configurations differ only in how they learn; they *do* where the weights that
they published before their first step have one checksum.  Who begins is decided by the first, figures by the second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from launch.config import RunConfig
from launch.evaluation.online.run_evaluations import BEFORE, read_run_evaluation
from launch.run_records.run_directory import config_tables
from learner.settings import LearnerSettings, TrainerSettings
from protocol.events import JsonValue

_LEARNING = frozenset({"stop", "proof", "checkpoint", "monitor", "staleness", "correction", "kl", "shaping", "buffer"})
"""Sections that the first weights, and what they are worth, do not depend on."""
_LEARNING_KEYS = frozenset(
    {
        *("run.name", "run.steps", "run.mode", "run.negative_control", "run.dir", "learner.lr", "learner.lr_end"),
        *("learner.lr_warmup_steps", "learner.call_timeout_s", "evaluation.before_training"),
        *(f"learner.{key}" for key in LearnerSettings.model_fields.keys() - TrainerSettings.model_fields.keys()),
    }
)


def start_key(config: RunConfig) -> str:
    """The same for configurations whose runs ought to begin alike."""
    values = {
        f"{section}.{key}": value
        for section, keys in config_tables(config).items()
        for key, value in keys.items()
        if section not in _LEARNING and f"{section}.{key}" not in _LEARNING_KEYS
    }
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()


def has_begun_training(run_dir: Path) -> bool:
    """Whether a run has come to training, so that its warm start and the evaluation before it can be had."""
    return any(event["kind"] == "run.phase" and event["phase"] == "training" for event in _driver_events(run_dir))


def first_weights(run_dir: Path) -> str:
    """Checksum of what training began with; empty as long as nobody knows."""
    found = ""
    for event in _driver_events(run_dir):
        if event["kind"] == "weights.published" and event["step"] == 0:
            found = str(event["sha256"])
    return found


def is_evaluated(run_dir: Path) -> bool:
    """Whether a run has an evaluation of its first weights."""
    return read_run_evaluation(run_dir, BEFORE, 0) is not None


def find_shared_evaluation(run_dir: Path, others: Sequence[Path]) -> Path | None:
    """The run, itself before all ``others``, that has evaluated the weights that ``run_dir`` began with."""
    if is_evaluated(run_dir):
        return run_dir
    weights = first_weights(run_dir)
    return next((each for each in others if weights and is_evaluated(each) and first_weights(each) == weights), None)


def _driver_events(run_dir: Path) -> Iterator[dict[str, JsonValue]]:
    """Attempt by attempt; a line that is not whole is left out."""
    for path in sorted(run_dir.glob("events/driver-*.jsonl"), key=lambda path: int(path.stem.rpartition("-")[2])):
        with path.open("rb") as file:
            for line in file:
                with suppress(orjson.JSONDecodeError):
                    yield orjson.loads(line)
