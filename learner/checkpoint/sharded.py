"""Sharded checkpoints: weights, Adam state and random state, by megatron's dist_checkpointing.

:func:`begin` copies the state, and that is all that training waits for; :func:`write` puts the copies on the disk,
beside later steps, which do not reach them.  A folder is complete when :func:`write` has returned on all ranks; the
caller says so in a manifest, written last.  It may be loaded by other numbers of ranks than wrote it; the random state
only by the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist

from learner.models.qwen import QwenConfig
from learner.parallel import megatron_on_cpu
from learner.parallel.layout import ParallelLayout
from learner.parallel.megatron import ShardedObject, get_rng_tracker, parallel_state
from learner.settings import LearnerSettings
from learner.training.trainer import MegatronTrainer
from protocol.errors import UserError
from protocol.files.digests import FileDigest

if TYPE_CHECKING:  # it imports megatron's strategies, which are needed late or never
    from learner.checkpoint.shard_files import PlannedCheckpoint

_CONTENT = {
    "distrib_optim_sharding_type": "fully_reshardable",
    "singleton_local_shards": False,
    "chained_optim_avoid_prefix": True,
}


def model_fingerprint(config: QwenConfig, settings: LearnerSettings) -> Mapping[str, object]:
    """What a checkpoint and who loads it must agree in; sharding is not among it."""
    lora = {"rank": 0} if settings.lora is None else asdict(settings.lora)
    return asdict(config) | {
        "learner.dtype": settings.dtype.value,
        "distributed_optimizer": settings.distributed_optimizer,
        **{f"lora.{name}": value for name, value in lora.items()},
    }


def _state(trainer: MegatronTrainer, layout: ParallelLayout, *, loading: bool, random: bool) -> dict[str, Any]:
    _keep_padding(trainer.optimizer.inner)
    content = _CONTENT | {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    model = trainer.model.sharded_state_dict(metadata=content)
    state = {
        "model": model,
        "optimizer": trainer.optimizer.megatron.sharded_state_dict(model, is_loading=loading, metadata=content),
    }
    if random:
        state["random"] = ShardedObject(
            "random", None if loading else _random_state(), (layout.world,), (layout.rank,), replica_id=0
        )
    return state


def _keep_padding(optimizer: Any) -> None:
    """megatron (0.16; its issue 504) takes the padding between buckets out of the distributed optimizer's state, and
    then looks for parameters where they lie with it.  With several buckets, as a pipeline with tied embeddings has
    them, that saves the values of others: so let it think that there is no padding."""
    for buffer in getattr(optimizer, "buffers", ()):
        buffer.numel_unpadded = buffer.numel
        for bucket in buffer.buckets:
            bucket.numel_unpadded = bucket.grad_data.numel()


def _random_state() -> dict[str, Any]:
    cuda = None if megatron_on_cpu.CPU_ONLY else torch.cuda.get_rng_state()
    return {"cpu": torch.get_rng_state(), "cuda": cuda, "tracker": get_rng_tracker().get_states()}


def begin_checkpoint(
    trainer: MegatronTrainer, layout: ParallelLayout, of: Mapping[str, object], folder: Path
) -> PlannedCheckpoint:
    """Copy the state that a checkpoint in ``folder`` is to have.  All ranks call it; no file is touched."""
    from learner.checkpoint import shard_files

    trainer.optimizer.make_state()
    with megatron_on_cpu.without_megatron_warnings(), megatron_on_cpu.cuda_is_cpu():
        state = _state(trainer, layout, loading=False, random=True) | {"world": layout.world, "of": dict(of)}
        return shard_files.plan_checkpoint(state, folder)


def write_checkpoint(planned: PlannedCheckpoint, group: dist.ProcessGroup) -> dict[str, FileDigest]:
    """See :func:`learner.checkpoint.shard_files.write_save`."""
    from learner.checkpoint import shard_files

    return shard_files.write_planned_checkpoint(planned, group)


def load_checkpoint(trainer: MegatronTrainer, layout: ParallelLayout, of: Mapping[str, object], folder: Path) -> None:
    """All ranks call it.  Raises UserError where ``folder`` is no checkpoint, a damaged one, or another model's."""
    from learner.checkpoint import shard_files

    try:
        common = shard_files.read_common_state(folder)
        _require_same(common["of"], of, folder)
        same = common["world"] == layout.world
        trainer.optimizer.make_state()
        with megatron_on_cpu.without_megatron_warnings(), megatron_on_cpu.cuda_is_cpu():
            state = shard_files.read_sharded_state(_state(trainer, layout, loading=True, random=same), folder)
            _apply_state(trainer, state)
    except shard_files.UnreadableCheckpointError as error:
        raise UserError(
            f"{folder} is not a checkpoint that can be loaded ({error}): name the learner's folder of one under the "
            "run's checkpoints/, or go on from an earlier one: move this one away, then --resume"
        ) from error
    if same:
        torch.set_rng_state(state["random"]["cpu"])
        if state["random"]["cuda"] is not None:
            torch.cuda.set_rng_state(state["random"]["cuda"])
        get_rng_tracker().set_states(state["random"]["tracker"])


def _apply_state(trainer: MegatronTrainer, state: dict[str, Any]) -> None:
    trainer.model.load_state_dict(state["model"])
    megatron_on_cpu.restore_adam_steps(trainer.optimizer.inner, state["optimizer"])
    trainer.optimizer.megatron.load_state_dict(state["optimizer"])
    megatron_on_cpu.separate_adam_steps(trainer.optimizer.adam)


def _require_same(written: Mapping[str, object], own: Mapping[str, object], folder: Path) -> None:
    """Raises UserError where a checkpoint is not of this model.  Megatron itself would let another vocabulary pass."""
    other = [
        f"{name} = {written[name]} there, {own[name]} here"
        for name in own.keys() & written.keys()
        if own[name] != written[name]
    ]
    if other:
        raise UserError(
            f"{folder} is a checkpoint of another model or of other settings ({'; '.join(sorted(other))}): go on with "
            "the model and settings that it was written with, or start a new run from its weights"
        )


def digest_optimizer(trainer: MegatronTrainer) -> str:
    """sha256 over this rank's Adam state, main weights included where they are not the weights themselves: equal
    exactly when it is equal bit for bit."""
    from learner.checkpoint.published_weights import digest_weights
    from learner.models.weight_conversion import NamedWeight

    trainer.optimizer.reload()
    named = (
        NamedWeight(f"{group}.{index}.{key}", value.detach().to("cpu", copy=True))  # numpy's views forbid parking
        for group, settings in enumerate(trainer.optimizer.adam.param_groups)
        for index, parameter in enumerate(cast("list[torch.Tensor]", settings["params"]))
        for key, value in sorted(_tensors(trainer, parameter).items())
    )
    return digest_weights(named)


def _tensors(trainer: MegatronTrainer, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"weight": parameter, **trainer.optimizer.adam.state[parameter]}
