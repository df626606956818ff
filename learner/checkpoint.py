"""Sharded checkpoints: weights, Adam state and random state, by megatron's dist_checkpointing.

A folder is complete when :func:`save` has returned on all ranks; the caller says so in a manifest, written last.  It
may be loaded by other numbers of ranks than wrote it; the random state only by the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from learner import seam
from learner.megatron import ShardedObject, dist_checkpointing, get_rng_tracker, parallel_state
from learner.parallel import Layout
from learner.step import Trainer
from learner.tensors import barrier
from protocol.errors import UserError
from protocol.filesystem import sync

_CONTENT = {
    "distrib_optim_sharding_type": "fully_reshardable",
    "singleton_local_shards": False,
    "chained_optim_avoid_prefix": True,
}


def _state(trainer: Trainer, layout: Layout, *, loading: bool, random: bool) -> dict[str, Any]:
    content = _CONTENT | {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    model = trainer.model.sharded_state_dict(metadata=content)
    state = {
        "model": model,
        "world": layout.world,
        "optimizer": trainer.optimizer.megatron.sharded_state_dict(model, is_loading=loading, metadata=content),
    }
    if random:
        state["random"] = ShardedObject(
            "random", None if loading else _random_state(), (layout.world,), (layout.rank,), replica_id=0
        )
    return state


def _random_state() -> dict[str, Any]:
    cuda = None if seam.ACTIVE else torch.cuda.get_rng_state()
    return {"cpu": torch.get_rng_state(), "cuda": cuda, "tracker": get_rng_tracker().get_states()}


def save(trainer: Trainer, layout: Layout, folder: Path) -> None:
    """All ranks call it.  On return every file is synced to disk."""
    seam.prepare_checkpointing()
    if layout.writes:
        folder.mkdir(parents=True, exist_ok=True)
    barrier()
    trainer.optimizer.make_state()
    with seam.quiet(), seam.cuda_is_cpu():
        dist_checkpointing.save(
            _state(trainer, layout, loading=False, random=True), str(folder), content_metadata=dict(_CONTENT)
        )
    if layout.writes:
        for path in (*folder.iterdir(), folder):
            sync(path)
    barrier()


def load(trainer: Trainer, layout: Layout, folder: Path) -> None:
    """All ranks call it.  Raises UserError where ``folder`` is no checkpoint."""
    if not dist_checkpointing.check_is_distributed_checkpoint(str(folder)):
        raise UserError(f"{folder} is not a checkpoint: name a folder under the run's checkpoints/")
    seam.prepare_checkpointing()
    trainer.optimizer.make_state()
    with seam.quiet(), seam.cuda_is_cpu():
        common = dist_checkpointing.load_common_state_dict(str(folder))
        same = common["world"] == layout.world
        state = dist_checkpointing.load(_state(trainer, layout, loading=True, random=same), str(folder))
        trainer.model.load_state_dict(state["model"])
        seam.give_adam_steps(trainer.optimizer.inner, state["optimizer"])
        trainer.optimizer.megatron.load_state_dict(state["optimizer"])
    seam.own_adam_steps(trainer.optimizer.adam)
    if same:
        torch.set_rng_state(state["random"]["cpu"])
        if state["random"]["cuda"] is not None:
            torch.cuda.set_rng_state(state["random"]["cuda"])
        get_rng_tracker().set_states(state["random"]["tracker"])
