"""Sharded checkpoints of weights, Adam state and random state, by megatron's dist_checkpointing.

:meth:`CheckpointSaver.copy` copies the state, the only part that training waits for; :meth:`CheckpointSaver.write_copy`
writes the copies to disk while later steps run.  A folder is complete once ``write_copy`` has returned on all ranks;
the caller then writes a manifest last.  A checkpoint may be loaded with another number of ranks than wrote it; its
random state is restored only with the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from learner.messages import LearnerNotReadyError
from learner.parallel import megatron_on_cpu
from learner.parallel.megatron import ShardedObject, get_rng_tracker, parallel_state
from learner.training.trainer import MegatronTrainer
from protocol.errors import UserError
from protocol.files.digests import FileDigest

if TYPE_CHECKING:  # it imports megatron's strategies, which are rarely needed
    from learner.checkpoint.shard_files import PlannedCheckpoint

_CONTENT = {
    "distrib_optim_sharding_type": "fully_reshardable",
    "singleton_local_shards": False,
    "chained_optim_avoid_prefix": True,
}


def model_fingerprint(trainer: MegatronTrainer) -> Mapping[str, object]:
    """Return the properties in which a checkpoint and the learner that loads it must agree, which exclude sharding."""
    config, spec, lora = trainer.config, trainer.spec, trainer.spec.lora
    adapters = {"rank": lora.rank, "alpha": lora.alpha, "targets": lora.projections} if lora.enabled else {"rank": 0}
    return asdict(config) | {
        "learner.dtype": spec.trainer.dtype.value,
        "distributed_optimizer": spec.trainer.distributed_optimizer,
        **{f"lora.{name}": value for name, value in adapters.items()},
    }


def _state(trainer: MegatronTrainer, *, loading: bool, random: bool) -> dict[str, Any]:
    layout = trainer.layout
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
    """Make megatron (0.16; its issue 504) keep the padding between buckets in the distributed optimizer's state.

    It would remove the padding and still use offsets that include it; with several buckets, as in a pipeline with tied
    embeddings, it would save values of other parameters.
    """
    for buffer in getattr(optimizer, "buffers", ()):
        buffer.numel_unpadded = buffer.numel
        for bucket in buffer.buckets:
            bucket.numel_unpadded = bucket.grad_data.numel()


def _random_state() -> dict[str, Any]:
    cuda = None if megatron_on_cpu.CPU_ONLY else torch.cuda.get_rng_state()
    return {"cpu": torch.get_rng_state(), "cuda": cuda, "tracker": get_rng_tracker().get_states()}


class CheckpointSaver:
    """Saves and loads the checkpoints of one learner.  Each call is a collective of all ranks."""

    def __init__(self, trainer: MegatronTrainer, group: dist.ProcessGroup) -> None:
        """``group`` has all ranks and is used by nothing else: writing communicates concurrently with a step's
        collectives."""
        self._trainer, self._group = trainer, group
        self._planned: PlannedCheckpoint | None = None

    def copy(self, folder: Path) -> None:
        """Copy the state for a checkpoint in ``folder`` without touching a file."""
        from learner.checkpoint import shard_files

        trainer, layout = self._trainer, self._trainer.layout
        trainer.optimizer.make_state()
        with megatron_on_cpu.without_megatron_warnings(), megatron_on_cpu.cuda_is_cpu():
            state = _state(trainer, loading=False, random=True)
            state |= {"world": layout.world, "of": dict(model_fingerprint(trainer))}
            self._planned = shard_files.plan_checkpoint(state, folder)

    def write_copy(self) -> dict[str, FileDigest]:
        """Write the copy made by :meth:`copy`; see :func:`learner.checkpoint.shard_files.write_planned_checkpoint`.  It
        may run concurrently with any other call."""
        from learner.checkpoint import shard_files

        planned, self._planned = self._planned, None
        if planned is None:
            raise LearnerNotReadyError("there is no state to write: call begin_save() first")
        return shard_files.write_planned_checkpoint(planned, self._group)

    def load(self, folder: Path) -> None:
        """Load all state from ``folder``.  Raises UserError if it is not a checkpoint, is damaged, or belongs to
        another model."""
        from learner.checkpoint import shard_files

        trainer = self._trainer
        try:
            common = shard_files.read_common_state(folder)
            _require_same(common["of"], model_fingerprint(trainer), folder)
            same_world = common["world"] == trainer.layout.world
            trainer.optimizer.make_state()
            with megatron_on_cpu.without_megatron_warnings(), megatron_on_cpu.cuda_is_cpu():
                state = shard_files.read_sharded_state(_state(trainer, loading=True, random=same_world), folder)
                _apply_state(trainer, state)
        except shard_files.UnreadableCheckpointError as error:
            raise UserError(
                f"{folder} is not a checkpoint that can be loaded ({error}): name the learner's folder of one under "
                "the run's checkpoints/, or continue from an earlier one: move this one away, then --resume"
            ) from error
        if same_world:
            _restore_random_state(state["random"])


def _restore_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"])
    get_rng_tracker().set_states(state["tracker"])


def _apply_state(trainer: MegatronTrainer, state: dict[str, Any]) -> None:
    trainer.model.load_state_dict(state["model"])
    megatron_on_cpu.restore_adam_steps(trainer.optimizer.inner, state["optimizer"])
    trainer.optimizer.megatron.load_state_dict(state["optimizer"])
    megatron_on_cpu.separate_adam_steps(trainer.optimizer.adam)


def _require_same(written: Mapping[str, object], own: Mapping[str, object], folder: Path) -> None:
    """Raise UserError if a checkpoint is of another model; megatron itself would accept another vocabulary."""
    other = [
        f"{name} = {written[name]} there, {own[name]} here"
        for name in own.keys() & written.keys()
        if own[name] != written[name]
    ]
    if other:
        raise UserError(
            f"{folder} is a checkpoint of another model or of other settings ({'; '.join(sorted(other))}): use the "
            "model and settings that it was written with, or start a new run from its weights"
        )
