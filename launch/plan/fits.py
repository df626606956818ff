"""Whether learner ranks and engines have room on their GPUs, and what to turn where they have not.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launch.config import RunConfig
from launch.plan.memory import Memory, kv_bytes_per_token
from launch.plan.table import amount
from learner.qwen import QwenConfig

_ROOM_SHARE = 0.92
"""Of a GPU: the rest is CUDA's, NCCL's and the allocator's."""


def problems(
    shape: QwenConfig, config: RunConfig, learner: Memory, engine: Memory, device_bytes: int | None
) -> Iterator[str]:
    """One line for each; none where nothing is on a GPU."""
    if device_bytes is None:
        return
    if config.learner.device == "cuda" and learner.most_bytes > _ROOM_SHARE * device_bytes:
        yield (
            f"a learner rank wants {amount(learner.most_bytes)} and its GPU has {amount(device_bytes)}, of which "
            f"{_ROOM_SHARE:.0%} can be counted on: --set learner.distributed_optimizer=true, learner.recompute=full or "
            "learner.offload=optimizer, or raise learner.tp and learner.ranks"
        )
    if config.engine.device == "cuda":
        each = kv_bytes_per_token(shape, config.engine.dtype, config.engine.tp)
        tokens = next(part.bytes for part in engine.parts if part.name == "kv_cache") // each
        if tokens < config.agent.context_tokens:
            yield (
                f"beside the weights, an engine's GPU of {amount(device_bytes)} has room for {tokens:,} tokens, and "
                f"one episode has up to agent.context_tokens = {config.agent.context_tokens:,}: raise engine.tp or "
                "engine.memory_share"
            )
