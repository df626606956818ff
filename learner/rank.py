"""One learner rank: the only object of this package that other packages create.

:class:`LearnerRank` is a plain class with blocking methods; elsewhere it becomes a Ray actor.  Every rank of a learner
gets the same calls with the same arguments in the same order, since each call is a collective.  Constructing a rank
costs nothing; :meth:`LearnerRank.setup` imports megatron, joins the process group and loads the weights.

The rank wires its parts and keeps them on their device while they compute: :mod:`learner.training` takes steps,
:mod:`learner.checkpoint.publisher` publishes weights, and :mod:`learner.checkpoint.sharded` saves and loads
checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from learner.messages import LearnerNotReadyError, SftBatch, SftReport, StepReport
from learner.settings import Offload
from learner.spec import LearnerSpec
from protocol.files.digests import FileDigest
from protocol.processes.stack_dumps import register_stack_dump
from protocol.run_directory.process_log import bind_log_ids, get_logger
from protocol.trajectory import Float32Array, Int32Array, Uint8Array
from protocol.weights import NO_VERSION, Lineage, WeightManifest, WeightVersion

if TYPE_CHECKING:  # these load torch or megatron
    from learner.checkpoint.publisher import WeightWriter
    from learner.checkpoint.sharded import CheckpointSaver
    from learner.models.reference import ReferencePolicy
    from learner.training.trainer import MegatronTrainer


_log = get_logger(__name__)


@dataclass(slots=True)
class ReadyLearner:
    """The parts of a rank after :meth:`LearnerRank.setup`."""

    trainer: MegatronTrainer
    publisher: WeightWriter
    checkpoints: CheckpointSaver
    reference: ReferencePolicy | None = None
    """The frozen weights of the KL penalty, after :meth:`LearnerRank.freeze_reference`."""


class LearnerRank:
    """One rank of a learner; the module says how it is called."""

    def __init__(
        self,
        spec: LearnerSpec,
        rank: int = 0,
        world: int = 1,
        master_addr: str = "127.0.0.1",
        master_port: int = 0,
        *,
        stacks: str = "",
    ) -> None:
        """``stacks`` names the file into which this process writes its stacks on request."""
        self.spec, self.rank, self.world = spec, rank, world
        self._master = (master_addr, master_port)
        self._ready: ReadyLearner | None = None
        if stacks:
            register_stack_dump(Path(stacks), f"learner-{rank}")

    @property
    def ready(self) -> ReadyLearner:
        """The parts of this rank.  Raises LearnerNotReadyError before :meth:`setup`."""
        if self._ready is None:
            raise LearnerNotReadyError("this learner rank is not set up: call setup() first")
        return self._ready

    @contextmanager
    def _on_device(self) -> Generator[ReadyLearner]:
        """Hold the tensors on the device while the body runs, and offload them afterwards where the settings say so."""
        self.ready.trainer.reload()
        try:
            yield self.ready
        finally:
            self._offload_if_set()

    def _offload_if_set(self) -> None:
        if self.spec.trainer.offload is Offload.PARAMETERS:
            self.offload_to_host()

    def setup(self) -> None:
        """Join the process group and load the weights of ``spec.model_path``.  Raises UserError where model and
        settings do not fit each other."""
        from learner.checkpoint.publisher import WeightWriter
        from learner.checkpoint.sharded import CheckpointSaver
        from learner.models import lora, policy_model, weight_conversion
        from learner.models.qwen import read_qwen_config
        from learner.parallel.layout import join_process_groups, make_background_group
        from learner.training.trainer import MegatronTrainer

        spec, folder = self.spec, Path(self.spec.model_path)
        config = read_qwen_config(folder)
        weight_conversion.check_model_folder(folder, config)
        layout = join_process_groups(spec.trainer, self.rank, self.world, self._master, seed=spec.seed)
        policy = policy_model.build_policy_model(config, spec, layout)
        weight_conversion.load_model_folder(policy, folder, config, layout)
        if spec.lora.enabled:
            lora.attach_adapters(policy, config, spec, layout)
        trainer = MegatronTrainer(policy, config, spec, layout)
        self._ready = ReadyLearner(
            trainer,
            WeightWriter(spec, policy, config, layout),
            CheckpointSaver(trainer, make_background_group(spec.trainer)),
        )
        self._offload_if_set()

    def close(self) -> None:
        """Leave the process group.  The rank can be set up again."""
        from learner.parallel import layout

        self._ready = None
        layout.leave_process_groups()

    def sft(self, batch: SftBatch) -> SftReport:
        """Take one optimizer step of supervised fine-tuning at the batch's learning rate."""
        (report,) = self.sft_run([batch])
        return report

    def sft_run(self, batches: Iterable[SftBatch]) -> list[SftReport]:
        """Take a step of :meth:`sft` on each batch in order, in one call."""
        from learner.training.sft import train_sft_step

        with self._on_device() as ready:
            return [train_sft_step(ready.trainer, batch) for batch in batches]

    def log_likelihoods(self, sequences: list[tuple[Int32Array, Uint8Array]]) -> list[float]:
        """Return Σ log π over the tokens with loss of each sequence without training.  Every sequence has at least one
        such token."""
        from learner.training.sft import log_likelihoods

        with self._on_device() as ready:
            return log_likelihoods(ready.trainer, sequences)

    def logprobs(self, sequences: list[tuple[Int32Array, Uint8Array]]) -> list[Float32Array]:
        """Return log π of the tokens with loss of each sequence, at ``spec.temperature``, by forward passes alone.
        Every sequence has at least one such token."""
        from learner.data.batch import make_supervised_samples

        with self._on_device() as ready:
            return ready.trainer.logprobs(make_supervised_samples(sequences))

    def set_learning_rate(self, step: int, lr: float) -> None:
        """Use the learning rate ``lr`` from optimizer step ``step`` on."""
        self.spec = replace(self.spec, lr_changes=(*self.spec.lr_changes, (step, lr)))

    def offload_to_host(self) -> None:
        """Move everything to host memory, so that another process can use the device.  The next call of any method
        brings it back."""
        self.ready.trainer.offload()

    def reset_optimizer(self) -> None:
        """Clear Adam's moments, as at the start of reinforcement learning."""
        with self._on_device() as ready:
            ready.trainer.optimizer.forget_moments()

    def freeze_reference(self, folder: str, write: bool) -> None:
        """Freeze the reference of the KL penalty.  With ``write`` it is the current weights, which are also written as
        a Hugging Face folder; otherwise it is the weights in that folder.  With adapters the reference is the base
        model in either case, and no folder is needed."""
        from learner.models import weight_conversion
        from learner.models.adapters import adapters_by_weight
        from learner.models.reference import BaseModelReference, CopiedReference

        ready = self.ready
        if self.spec.lora.enabled:
            ready.reference = BaseModelReference(adapters_by_weight(ready.trainer.model).values())
            return
        with self._on_device():
            trainer, reference = ready.trainer, CopiedReference(ready.trainer.model)
            if not write:
                with reference.activated():
                    weight_conversion.load_model_folder(trainer.model, Path(folder), trainer.config, trainer.layout)
            ready.reference = reference
        if write:
            self.publish(WeightVersion(0), 0, NO_VERSION, folder)

    def step(self, step: int, payload: list[bytes], lineage: Lineage, using: WeightVersion) -> StepReport:
        """Train on a leased batch of whole groups.  ``step`` is the number of the step being taken, ``payload`` the
        packed trajectories (:func:`protocol.codec.pack_trajectory`), and ``using`` the version of the weights that are
        about to be updated."""
        from learner.data.batch import read_batch
        from learner.data.usable import sort_out_unusable
        from learner.training.step_report import make_step_report, throughput_metrics
        from learner.training.token_records import pack_token_records
        from learner.training.update import BatchUpdateResult, update_policy

        spec, began, ready, lr = self.spec, time.perf_counter(), self.ready, self.spec.lr_at(step)
        if ready.reference is None and spec.objective.kl.coefficient:
            raise LearnerNotReadyError("there is a KL penalty and no reference: call freeze_reference() first")
        usable = sort_out_unusable(payload, lineage.entries, ready.trainer.limits)
        batch = read_batch(usable.payload, lineage, using, spec)
        with bind_log_ids(step=step), self._on_device():
            done = (
                update_policy(ready.trainer, ready.reference, batch.samples, lr)
                if batch.samples
                else BatchUpdateResult()
            )
        seconds = time.perf_counter() - began
        _log.info("step computed", step=step, samples=len(batch.samples), seconds=round(seconds, 3))
        speed = throughput_metrics(batch.samples, seconds, ready.trainer.cost, spec.trainer.dtype, self.world)
        results = done.token_results if ready.trainer.layout.is_writer else ()
        records = pack_token_records(batch.trajectory_ids, batch.lengths, results)
        measured = {"lr": lr, "seconds": seconds, **speed}
        return make_step_report(step, batch, done, measured, records=records, faults=usable.faults)

    def publish(self, version: WeightVersion, step: int, parent: WeightVersion, folder: str) -> WeightManifest | None:
        """Write the weights as a Hugging Face folder, with adapters merged into them, one file at a time.  Rank 0
        returns the manifest, the others None."""
        from learner.checkpoint.published_weights import WeightVersionInfo

        with self._on_device() as ready:
            return ready.publisher.publish(WeightVersionInfo(version, step, parent), Path(folder))

    def publish_adapter(
        self, version: WeightVersion, step: int, parent: WeightVersion, folder: str
    ) -> WeightManifest | None:
        """Write the adapters alone as PEFT does, for the base model at ``spec.model_path``.  Rank 0 returns the
        manifest, the others None.  SGLang loads the folder only if q_proj and v_proj are both there whenever one of
        q_proj, k_proj and v_proj is, and gate_proj whenever up_proj is."""
        from learner.checkpoint.published_weights import WeightVersionInfo

        with self._on_device() as ready:
            return ready.publisher.publish_adapter(WeightVersionInfo(version, step, parent), Path(folder))

    def begin_publish(self) -> None:
        """Copy the weights, or with ``spec.publish_adapters`` the adapters, for :meth:`end_publish`."""
        with self._on_device() as ready:
            ready.publisher.copy()

    def end_publish(
        self, version: WeightVersion, step: int, parent: WeightVersion, folder: str
    ) -> WeightManifest | None:
        """Write the copy made by :meth:`begin_publish`, like :meth:`publish` or :meth:`publish_adapter`.  This is not a
        collective, and may run concurrently with any other call."""
        from learner.checkpoint.published_weights import WeightVersionInfo

        return self.ready.publisher.write_copy(WeightVersionInfo(version, step, parent), Path(folder))

    def save(self, folder: str) -> dict[str, FileDigest]:
        """Write a sharded checkpoint of weights, optimizer and random state, synced to disk.  Rank 0 returns the digest
        of each file, from which the caller writes the manifest that completes the checkpoint.  Raises
        CheckpointSaveError."""
        self.begin_save(folder)
        return self.end_save()

    def begin_save(self, folder: str) -> None:
        """Copy the state for :meth:`end_save`."""
        with self._on_device() as ready:
            ready.checkpoints.copy(Path(folder))

    def end_save(self) -> dict[str, FileDigest]:
        """Write the copy made by :meth:`begin_save`, like :meth:`save`.  It may run concurrently with any other
        call."""
        return self.ready.checkpoints.write_copy()

    def load(self, folder: str) -> None:
        """Load all state from a checkpoint that :meth:`save` wrote.  Raises UserError."""
        with self._on_device() as ready:
            ready.checkpoints.load(Path(folder))

    def weights_digest(self) -> str:
        """Return the sha256 of all weights and adapters, the same on every rank; equal weights, bit for bit, have equal
        digests."""
        with self._on_device() as ready:
            return ready.publisher.digest()
