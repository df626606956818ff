"""Whether learner ranks and engines have room on their GPUs, and what to turn where they have not.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launch.config import RunConfig
from launch.plan.memory import ProcessMemory, kv_bytes_per_token
from launch.plan.plan_table import format_bytes
from learner.models.qwen import QwenConfig
from learner.settings import Offload, Recompute, TrainerSettings

_ROOM_SHARE = 0.92
"""Of a GPU: the rest is CUDA's, NCCL's and the allocator's."""


def find_memory_problems(
    shape: QwenConfig, config: RunConfig, learner: ProcessMemory, engine: ProcessMemory, device_bytes: int | None
) -> Iterator[str]:
    """One line for each; none where nothing is on a GPU."""
    if device_bytes is None:
        return
    if config.learner.device == "cuda" and learner.peak_bytes > _ROOM_SHARE * device_bytes:
        yield (
            f"a learner rank wants {format_bytes(learner.peak_bytes)} and its GPU has {format_bytes(device_bytes)}, "
            f"of which {_ROOM_SHARE:.0%} can be counted on: {', '.join(_savers(config.learner))}"
        )
    if config.engine.device == "cuda":
        each = kv_bytes_per_token(shape, config.engine.dtype, config.engine.tp)
        tokens = next(part.bytes for part in engine.parts if part.name == "kv_cache") // each
        if tokens < config.agent.context_tokens:
            yield (
                f"beside the weights, an engine's GPU of {format_bytes(device_bytes)} has room for {tokens:,} tokens, "
                f"and one episode has up to agent.context_tokens = {config.agent.context_tokens:,}: raise engine.tp or "
                "engine.mem_fraction_static"
            )


def _savers(learner: TrainerSettings) -> Iterator[str]:
    """What takes less memory, of that which is not set yet."""
    if not learner.distributed_optimizer and learner.ranks > learner.tp * learner.pp:
        yield "--set learner.distributed_optimizer=true"
    if learner.recompute is not Recompute.FULL:
        yield "--set learner.recompute=full"
    if learner.offload is Offload.NONE:
        yield "--set learner.offload=optimizer"
    yield "raise learner.tp and learner.ranks"
