"""The memory of the engines of a run's own judge, from its folder's tensors: a judge may be of any architecture."""

from __future__ import annotations

import math
from collections.abc import Iterator

from actors.engines.messages import InvalidWeights
from actors.engines.weights.weight_files import read_shapes
from launch.config import RunConfig
from launch.plan.memory import MemoryPart, ProcessMemory, engine_rest, engine_room, engine_weights
from protocol.cli.formatting import format_bytes
from protocol.errors import UserError


def judge_memory(config: RunConfig, device_bytes: int | None) -> ProcessMemory | None:
    """Return the memory of one GPU of the judge, or of one of its engines without a GPU; None if the run serves no
    judge.  Raises UserError for a folder without weights."""
    folder, engine, tp = config.judge.own_model, config.engine, config.judge.tp
    if folder is None:
        return None
    try:
        parameters = sum(map(math.prod, read_shapes(folder).values()))
    except InvalidWeights as error:
        raise UserError(f"judge.model = '{folder}' cannot be sized: {error}") from error
    weights = engine_weights(parameters, engine, tp)
    parts = [weights]
    name, count = "judge engine", config.judge.own_engines
    if engine.device == "cuda" and device_bytes is not None:
        name, count = "judge GPU", count * tp
        room = engine_room(weights, engine, device_bytes)
        parts += [
            MemoryPart("kv_cache", room, f"what is left, for at most {engine.max_total_tokens:,} tokens"),
            engine_rest(engine, device_bytes),
        ]
    return ProcessMemory(name, count, tuple(parts), sum(part.bytes for part in parts))


def find_judge_problems(config: RunConfig, judge: ProcessMemory, device_bytes: int | None) -> Iterator[str]:
    """Yield a line if the judge's weights leave no room for questions on its GPUs."""
    if device_bytes is None or config.engine.device != "cuda":
        return
    sizes = {part.name: part.bytes for part in judge.parts}
    if not sizes["kv_cache"]:
        yield (
            f"the judge's weights need {format_bytes(sizes['weights'])} of each of its GPUs of "
            f"{format_bytes(device_bytes)}, and engine.mem_fraction_static = {config.engine.mem_fraction_static:g} "
            "leaves no room for questions: raise judge.tp or engine.mem_fraction_static"
        )
