"""The warm start: supervised training on scripted demonstrations or on data, kept for the next run with the same
inputs.

The cache key covers what the result depends on on this machine, code and pinned packages included, so a hit is bitwise
what training again would give.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from actors.tokens.chat_format import load_tokenizer
from launch.actor_group.learner_group import LearnerGroup
from launch.config import RunConfig
from launch.data.batch_plan import BatchPlan
from launch.data.demo.demonstrations import warm_start_batches, warm_start_learning_rate
from launch.data.preparation import PreparedRun
from launch.data.sft_examples import SequenceSelection, build_sft_batch, read_examples
from launch.data.warm_start_cache import find_cached_model, warm_start_folder
from learner.messages import SftBatch
from learner.models.qwen import read_qwen_config
from learner.rank import LearnerRank
from protocol.events import EventLog
from protocol.weights import NO_VERSION, WeightVersion

_CHUNK = 20


async def run_warm_start(config: RunConfig, learners: LearnerGroup, prepared: PreparedRun, events: EventLog) -> None:
    """Train the learner, cache the result, and reset the optimizer."""
    steps, batches = await asyncio.to_thread(plan_warm_start_batches, config, prepared.model_path)
    done = 0
    while chunk := await asyncio.to_thread(lambda: list(itertools.islice(batches, _CHUNK))):
        reports = await learners.call(LearnerRank.sft_run, chunk)
        done += len(chunk)
        events.emit("warm_start.progress", step=done, steps=steps, loss=round(reports[-1].loss, 5))
    await store_in_cache(config, learners)
    await learners.call(LearnerRank.reset_optimizer)


def plan_warm_start_batches(config: RunConfig, model_path: Path) -> tuple[int, Iterator[SftBatch]]:
    """Return the number of steps and the batches.  Raises UserError for data that this model cannot be trained on."""
    settings, shape = config.warm_start, read_qwen_config(model_path)
    if not settings.data:
        return settings.steps, warm_start_batches(config, model_path)
    choice = SequenceSelection(
        vocabulary=shape.vocab_size,
        max_tokens=min(config.learner.sequence_tokens, shape.max_position_embeddings),
        overlong=settings.overlong,
        min_score=settings.min_score,
        reward_weighted=settings.reward_weighted,
    )
    found = read_examples(settings.data, load_tokenizer(str(model_path)), choice).examples
    plan = BatchPlan(len(found), settings.epochs, settings.batch_size, config.run.seed)
    batches = ([found[index] for index in plan.batch(step)] for step in range(1, plan.steps + 1))
    rates = (warm_start_learning_rate(step, settings, plan.steps) for step in range(plan.steps))
    return plan.steps, (build_sft_batch(batch, lr) for batch, lr in zip(batches, rates, strict=True))


async def store_in_cache(config: RunConfig, learners: LearnerGroup) -> None:
    """Write the model for later runs.  Other runs may do so at the same time: the first model is kept, because it may
    be in use, and all are equal."""
    folder = warm_start_folder(config)
    delete_partial_models(folder.parent)
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        await learners.call(LearnerRank.publish, WeightVersion(0), 0, NO_VERSION, str(partial))
        if find_cached_model(config) is None:
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def delete_partial_models(cache: Path) -> None:
    """Remove models that killed runs wrote in part."""
    for partial in cache.glob("warm-start-*.partial"):
        if not Path("/proc", partial.suffixes[-2].removeprefix(".")).exists():
            shutil.rmtree(partial, ignore_errors=True)
