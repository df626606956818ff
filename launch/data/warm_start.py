"""The warm start: supervised training on scripted demonstrations or on data, kept for the next run with the same
inputs.

The cache key covers what the result depends on on this machine, code and pinned packages included, so a hit is bitwise
what training again would give.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import orjson

from actors.tokens.chat_format import load_tokenizer
from launch.actor_group.learner_group import LearnerGroup
from launch.config import RunConfig
from launch.data.preparation import PreparedRun
from launch.demo.demonstrations import warm_start_batches, warm_start_learning_rate
from launch.run_records.run_directory import config_tables
from launch.sft.batch_plan import BatchPlan
from launch.sft.examples import SequenceSelection, build_sft_batch, read_examples
from learner.messages import SftBatch
from learner.models.qwen import WEIGHTS_FILE, WEIGHTS_INDEX_FILE, read_qwen_config
from learner.rank import LearnerRank
from learner.settings import LearnerSettings, TrainerSettings
from protocol.events import EventLog
from protocol.files.digests import digest_file
from protocol.run_directory.trajectory_export import TRAJECTORIES_FOLDER
from protocol.weights import NO_VERSION, WeightVersion

_CHUNK = 20
_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = (
    "constraints.txt",
    "launch/demo/**/*.py",
    "launch/actor_group/learner_group.py",
    "launch/sft/**/*.py",
    "launch/data/warm_start.py",
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
    folder = _folder(config)
    return folder if any((folder / name).exists() for name in (WEIGHTS_INDEX_FILE, WEIGHTS_FILE)) else None


def _folder(config: RunConfig) -> Path:
    return config.run.dir / ".cache" / f"warm-start-{warm_start_cache_key(config)}"


async def run_warm_start(config: RunConfig, learners: LearnerGroup, prepared: PreparedRun, events: EventLog) -> None:
    """Train the learner, keep the result, and start its optimizer afresh."""
    steps, batches = await asyncio.to_thread(_plan_batches, config, prepared.model_path)
    done = 0
    while chunk := await asyncio.to_thread(lambda: list(itertools.islice(batches, _CHUNK))):
        reports = await learners.call(LearnerRank.sft_run, chunk)
        done += len(chunk)
        events.emit("warm_start.progress", step=done, steps=steps, loss=round(reports[-1].loss, 5))
    await _store_in_cache(config, learners)
    await learners.call(LearnerRank.reset_optimizer)


def _plan_batches(config: RunConfig, model_path: Path) -> tuple[int, Iterator[SftBatch]]:
    """How many there are, and the batch of each.  Raises UserError for data that this model cannot be trained on."""
    settings, shape = config.warm_start, read_qwen_config(model_path)
    if not settings.data:
        return settings.steps, warm_start_batches(config, model_path)
    choice = SequenceSelection(
        vocabulary=shape.vocab_size,
        max_tokens=min(config.learner.sequence_tokens, shape.max_position_embeddings),
        too_long=settings.too_long,
        min_score=settings.min_score,
        reward_weighted=settings.reward_weighted,
    )
    found = read_examples(settings.data, load_tokenizer(str(model_path)), choice).examples
    plan = BatchPlan(len(found), settings.epochs, settings.batch_size, config.run.seed)
    batches = ([found[index] for index in plan.batch(step)] for step in range(1, plan.steps + 1))
    rates = (warm_start_learning_rate(step, settings, plan.steps) for step in range(plan.steps))
    return plan.steps, (build_sft_batch(batch, lr) for batch, lr in zip(batches, rates, strict=True))


async def _store_in_cache(config: RunConfig, learners: LearnerGroup) -> None:
    """Write the model for the next run.  Other runs may do the same at the same time: the first one's is kept, since
    somebody may be reading it, and all are equal."""
    folder = _folder(config)
    _delete_partial_models(folder.parent)
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        await learners.call(LearnerRank.publish, WeightVersion(0), 0, NO_VERSION, str(partial))
        if find_cached_model(config) is None:
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _delete_partial_models(cache: Path) -> None:
    """Remove what runs that were killed while they wrote have left."""
    for partial in cache.glob("warm-start-*.partial"):
        if not Path("/proc", partial.suffixes[-2].removeprefix(".")).exists():
            shutil.rmtree(partial, ignore_errors=True)
