"""One learner rank: the only object that other rooms make.

A plain class with blocking methods; elsewhere it is made a Ray actor.  Every rank of a learner gets the same calls with
the same arguments, in the same order: each call is a collective.  Constructing costs nothing; :meth:`LearnerRank.setup`
imports megatron, joins the group and loads the weights.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from learner.messages import SftBatch, SftReport, StepReport
from learner.settings import LearnerSettings, Offload
from protocol.errors import LongshoreError, UserError
from protocol.files.digests import FileDigest
from protocol.processes.stack_dumps import register_stack_dump
from protocol.run_directory.process_log import bind_log_ids, get_logger
from protocol.trajectory import Float32Array, Int32Array, Uint8Array
from protocol.weights import NO_VERSION, Lineage, WeightManifest, WeightVersion

if TYPE_CHECKING:  # these load torch or megatron
    from torch.distributed import ProcessGroup

    from learner.checkpoint.published_weights import WeightVersionInfo
    from learner.checkpoint.shard_files import PlannedCheckpoint
    from learner.models.hf_folder import NamedWeight
    from learner.models.qwen import QwenConfig
    from learner.models.reference import ReferencePolicy
    from learner.parallel.layout import ParallelLayout
    from learner.training.trainer import MegatronTrainer


_log = get_logger(__name__)


class LearnerNotReadyError(LongshoreError):
    """A rank was used before its setup."""


@dataclass(slots=True)
class _ReadyRank:
    layout: ParallelLayout
    config: QwenConfig
    trainer: MegatronTrainer
    background_group: ProcessGroup
    """All ranks, for what they say to each other while a step's own exchanges go on."""
    reference: ReferencePolicy | None = None

    @property
    def of_model(self) -> Mapping[str, object]:
        from learner.checkpoint.sharded import model_fingerprint

        return model_fingerprint(self.config, self.trainer.settings)


class LearnerRank:
    """See the module."""

    def __init__(
        self,
        settings: LearnerSettings,
        rank: int = 0,
        world: int = 1,
        master_addr: str = "127.0.0.1",
        master_port: int = 0,
        *,
        stacks: str = "",
    ) -> None:
        """``stacks``: file to which the stacks of this process are written when they are asked for."""
        self.settings, self.rank, self.world = settings, rank, world
        self._master = (master_addr, master_port)
        self._made: _ReadyRank | None = None
        self._saving: PlannedCheckpoint | None = None
        self._publishing: list[NamedWeight] = []
        if stacks:
            register_stack_dump(Path(stacks), f"learner-{rank}")

    @property
    def _ready(self) -> _ReadyRank:
        if self._made is None:
            raise LearnerNotReadyError("this learner rank is not set up: call setup() first")
        return self._made

    @contextmanager
    def _on_device(self) -> Generator[_ReadyRank]:
        """With its tensors where they are computed with."""
        self._ready.trainer.reload()
        try:
            yield self._ready
        finally:
            self._offload_if_set()

    def _offload_if_set(self) -> None:
        if self.settings.offload is Offload.PARAMETERS:
            self.offload_to_host()

    def setup(self) -> None:
        """Join the group and load the weights of ``settings.model_path``.  Raises UserError where model and settings do
        not fit."""
        from learner.models import lora, policy_model, weight_conversion
        from learner.models.qwen import read_qwen_config
        from learner.parallel.layout import join_process_groups, make_background_group
        from learner.training.trainer import MegatronTrainer

        folder = Path(self.settings.model_path)
        config = read_qwen_config(folder)
        weight_conversion.check_model_folder(folder, config)
        layout = join_process_groups(self.settings, self.rank, self.world, *self._master)
        policy = policy_model.build_policy_model(config, self.settings, layout)
        weight_conversion.load_model_folder(policy, folder, config, _layers(config, layout), layout)
        if self.settings.lora is not None:
            lora.attach_adapters(policy, config, self.settings, self.settings.lora, layout)
        trainer = MegatronTrainer(policy, config, self.settings, layout)
        self._made = _ReadyRank(layout, config, trainer, make_background_group(self.settings))
        self._offload_if_set()

    def close(self) -> None:
        """Leave the group.  The rank can be set up again."""
        from learner.parallel import layout

        self._made = None
        layout.leave_process_groups()

    def sft(self, batch: SftBatch) -> SftReport:
        """One optimizer step of supervised fine-tuning with the batch's learning rate."""
        (report,) = self.sft_run([batch])
        return report

    def sft_run(self, batches: Iterable[SftBatch]) -> list[SftReport]:
        """:meth:`sft` for each batch in order, in one call."""
        from learner.training.sft import train_sft_step

        with self._on_device() as ready:
            return [train_sft_step(ready.trainer, batch) for batch in batches]

    def log_likelihoods(self, sequences: list[tuple[Int32Array, Uint8Array]]) -> list[float]:
        """Σ log π over the tokens with loss of each sequence; nothing is trained.  Each sequence has such tokens."""
        from learner.training.sft import log_likelihoods

        with self._on_device() as ready:
            return log_likelihoods(ready.trainer, sequences)

    def logprobs(self, sequences: list[tuple[Int32Array, Uint8Array]]) -> list[Float32Array]:
        """log π of the tokens with loss of each sequence, at the temperature of the settings, by forward passes alone.
        Each sequence has such tokens."""
        from learner.data.batch import make_supervised_samples

        with self._on_device() as ready:
            return ready.trainer.logprobs(make_supervised_samples(sequences))

    def set_learning_rate(self, step: int, lr: float) -> None:
        """``lr`` is the learning rate from optimizer step ``step`` on."""
        self.settings = replace(self.settings, lr_changes=(*self.settings.lr_changes, (step, lr)))

    def offload_to_host(self) -> None:
        """Give the device's memory back while somebody else needs it: everything waits on the host, and the next call
        of any method brings it back."""
        self._ready.trainer.offload()

    def reset_optimizer(self) -> None:
        """Forget Adam's moments, as at the start of reinforcement learning."""
        with self._on_device() as ready:
            ready.trainer.optimizer.forget_moments()

    def freeze_reference(self, folder: str, write: bool) -> None:
        """Freeze the reference of the KL penalty: with ``write`` the weights as they are, which become a Hugging Face
        folder, else those of that folder.  With adapters it is the base in either case, and no folder is needed."""
        from learner.models import weight_conversion
        from learner.models.adapters import adapters_by_weight
        from learner.models.reference import BaseModelReference, CopiedReference

        ready = self._ready
        if self.settings.lora is not None:
            ready.reference = BaseModelReference(adapters_by_weight(ready.trainer.model).values())
            return
        with self._on_device():
            model, reference = ready.trainer.model, CopiedReference(ready.trainer.model)
            if not write:
                with reference.in_place():
                    weight_conversion.load_model_folder(
                        model, Path(folder), ready.config, _layers(ready.config, ready.layout), ready.layout
                    )
            ready.reference = reference
        if write:
            self.publish(WeightVersion(0), 0, NO_VERSION, folder)

    def step(self, step: int, payload: list[bytes], lineage: Lineage, using: WeightVersion) -> StepReport:
        """Train on a leased batch of whole groups.  ``step`` is the number of the step being taken, ``payload`` what
        :func:`protocol.codec.dumps` wrote, ``using`` the version of the weights that are about to be updated."""
        from learner.data.batch import read_batch
        from learner.training.step_report import make_step_report, throughput_metrics
        from learner.training.token_records import pack_token_records
        from learner.training.update import BatchUpdateResult, update_policy

        began, ready, lr = time.perf_counter(), self._ready, self.settings.lr_at(step)
        if ready.reference is None and self.settings.objective.kl.coefficient:
            raise LearnerNotReadyError("there is a KL penalty and no reference: call keep_reference() first")
        batch = read_batch(payload, lineage, using, self.settings)
        with bind_log_ids(step=step), self._on_device():
            done = (
                update_policy(ready.trainer, ready.reference, batch.samples, lr)
                if batch.samples
                else BatchUpdateResult()
            )
        seconds = time.perf_counter() - began
        _log.info("step computed", step=step, samples=len(batch.samples), seconds=round(seconds, 3))
        speed = throughput_metrics(batch.samples, seconds, ready.trainer.cost, self.settings.dtype, ready.layout.world)
        seen = done.token_results if ready.layout.is_writer else ()
        records = pack_token_records(batch.trajectory_ids, batch.lengths, seen)
        return make_step_report(step, batch, done, {"lr": lr, "seconds": seconds, **speed}, records)

    def publish(self, version: WeightVersion, step: int, parent: WeightVersion, folder: str) -> WeightManifest | None:
        """Write the weights as a Hugging Face folder, with adapters merged into them, a file at a time.  Rank 0 returns
        its manifest, the others None."""
        from learner.checkpoint.published_weights import WeightVersionInfo

        with self._on_device() as ready:
            if ready.layout.is_writer:
                return self._write(self._export(), WeightVersionInfo(version, step, parent), Path(folder))
            deque(self._export(), 0)
        return None

    def begin_publish(self) -> None:
        """Copy the weights, or with ``settings.publish_adapters`` the adapters, for :meth:`end_publish`."""
        with self._on_device() as ready:
            exported = self._export_adapters() if self.settings.publish_adapters else self._export()
            self._publishing = [weight for weight in exported if ready.layout.is_writer]

    def end_publish(
        self, version: WeightVersion, step: int, parent: WeightVersion, folder: str
    ) -> WeightManifest | None:
        """Write what :meth:`begin_publish` copied, as :meth:`publish` or :meth:`publish_adapter` does.  No collective;
        it may run beside any other call."""
        from learner.checkpoint.published_weights import WeightVersionInfo

        weights, self._publishing = self._publishing, []
        if not self._ready.layout.is_writer:
            return None
        write = self._write_adapter if self.settings.publish_adapters else self._write
        return write(weights, WeightVersionInfo(version, step, parent), Path(folder))

    def _write(self, weights: Iterable[NamedWeight], named: WeightVersionInfo, folder: Path) -> WeightManifest:
        from learner.checkpoint.published_weights import write_weights_folder
        from learner.models import weight_conversion

        dtype = self._ready.trainer.model.config.params_dtype
        return write_weights_folder(
            weights,
            weight_conversion.hf_tensor_bytes(self._ready.config, dtype),
            Path(self.settings.model_path),
            folder,
            dtype=dtype,
            named=named,
            shard_bytes=self.settings.shard_bytes,
        )

    def publish_adapter(
        self, version: WeightVersion, step: int, parent: WeightVersion, folder: str
    ) -> WeightManifest | None:
        """Write the adapters alone as PEFT does, for the base of ``settings.model_path``.  Rank 0 returns the manifest,
        the others None.  SGLang wants both q_proj and v_proj where it has one of them or k_proj, and gate_proj where it
        has up_proj."""
        from learner.checkpoint.published_weights import WeightVersionInfo

        with self._on_device():
            matrices = list(self._export_adapters())
        if not self._ready.layout.is_writer:
            return None
        return self._write_adapter(matrices, WeightVersionInfo(version, step, parent), Path(folder))

    def _write_adapter(self, matrices: Iterable[NamedWeight], named: WeightVersionInfo, folder: Path) -> WeightManifest:
        from learner.checkpoint.published_weights import write_adapter_folder
        from learner.models.lora import make_peft_config

        if self.settings.lora is None:
            raise UserError("there are no adapters to publish: set lora.rank = 16, say, or publish() the weights")
        return write_adapter_folder(
            matrices, make_peft_config(self.settings.lora, self.settings.model_path), folder, named
        )

    def save(self, folder: str) -> dict[str, FileDigest]:
        """Write a sharded checkpoint: weights, optimizer and random state, synced to disk.  The caller writes the
        manifest that makes it count, from what rank 0 returns: file → digest.  Raises SaveError."""
        self.begin_save(folder)
        return self.end_save()

    def begin_save(self, folder: str) -> None:
        """Copy the state, for :meth:`end_save`."""
        from learner.checkpoint import sharded

        with self._on_device() as ready:
            self._saving = sharded.begin_checkpoint(ready.trainer, ready.layout, ready.of_model, Path(folder))

    def end_save(self) -> dict[str, FileDigest]:
        """Write what :meth:`begin_save` copied, as :meth:`save` does.  It may run beside any other call."""
        from learner.checkpoint import sharded

        planned, self._saving = self._saving, None
        if planned is None:
            raise LearnerNotReadyError("there is no state to write: call begin_save() first")
        return sharded.write_checkpoint(planned, self._ready.background_group)

    def load(self, folder: str) -> None:
        """Take all state from a checkpoint that :meth:`save` wrote.  Raises UserError."""
        from learner.checkpoint import sharded

        with self._on_device() as ready:
            sharded.load_checkpoint(ready.trainer, ready.layout, ready.of_model, Path(folder))

    def optimizer_digest(self) -> str:
        """sha256 over this rank's Adam state: equal exactly when it is equal bit for bit."""
        from learner.checkpoint import sharded

        with self._on_device() as ready:
            return sharded.digest_optimizer(ready.trainer)

    def weights_digest(self) -> str:
        """sha256 over all weights, the same on every rank: equal exactly when they are equal bit for bit, and adapters
        too."""
        from learner.checkpoint.published_weights import digest_weights

        with self._on_device():
            return digest_weights(itertools.chain(self._export(), self._export_adapters()))

    def _export(self) -> Iterable[NamedWeight]:
        from learner.models.weight_conversion import export_weights

        ready = self._ready
        return export_weights(ready.trainer.model, ready.config, ready.layout)

    def _export_adapters(self) -> Iterable[NamedWeight]:
        """None without LoRA."""
        from learner.models.lora import export_adapters

        ready, lora = self._ready, self.settings.lora
        return () if lora is None else export_adapters(ready.trainer.model, ready.config, lora, ready.layout)


def _layers(config: QwenConfig, layout: ParallelLayout) -> range:
    """Global indices of this stage's layers."""
    count = config.num_hidden_layers // layout.pp
    return range(layout.pp_rank * count, (layout.pp_rank + 1) * count)
