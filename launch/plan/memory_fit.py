"""Checks whether learner ranks and engines fit on their GPUs.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launch.config import RunConfig
from launch.plan.memory import ProcessMemory, kv_bytes_per_token
from learner.models.qwen import QwenConfig
from learner.settings import Offload, Recompute, TrainerSettings
from protocol.cli.formatting import format_bytes

_USABLE_SHARE = 0.92
"""Usable share of a GPU; CUDA, NCCL and the allocator need the rest."""


def find_memory_problems(
    shape: QwenConfig, config: RunConfig, learner: ProcessMemory, engine: ProcessMemory, device_bytes: int | None
) -> Iterator[str]:
    """Yield a line per problem; none if nothing runs on a GPU."""
    if device_bytes is None:
        return
    if config.learner.device == "cuda" and learner.peak_bytes > _USABLE_SHARE * device_bytes:
        yield (
            f"a learner rank needs {format_bytes(learner.peak_bytes)} and its GPU has {format_bytes(device_bytes)}, "
            f"of which {_USABLE_SHARE:.0%} is usable: {', '.join(_ways_to_save(config.learner))}"
        )
    if config.engine.device == "cuda":
        each = kv_bytes_per_token(shape, config.engine.dtype, config.engine.tp)
        tokens = next(part.bytes for part in engine.parts if part.name == "kv_cache") // each
        if tokens < config.agent.context_tokens:
            yield (
                f"besides the weights, an engine's GPU of {format_bytes(device_bytes)} has room for {tokens:,} tokens, "
                f"and one episode has up to agent.context_tokens = {config.agent.context_tokens:,}: raise engine.tp or "
                "engine.mem_fraction_static"
            )


def _ways_to_save(learner: TrainerSettings) -> Iterator[str]:
    """Yield settings that save memory and are not set yet."""
    if not learner.distributed_optimizer and learner.ranks > learner.tp * learner.pp:
        yield "--set learner.distributed_optimizer=true"
    if learner.recompute is not Recompute.FULL:
        yield "--set learner.recompute=full"
    if learner.offload is Offload.NONE:
        yield "--set learner.offload=optimizer"
    yield "raise learner.tp and learner.ranks"
