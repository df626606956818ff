"""One learner rank: the only object that other rooms make.

A plain class with blocking methods; elsewhere it is made a Ray actor.  Every rank of a learner gets the same calls with
the same arguments, in the same order: each call is a collective.  Constructing costs nothing; :meth:`LearnerRank.setup`
imports megatron, joins the group and loads the weights.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from learner.messages import SftBatch, SftReport, StepReport
from learner.settings import LearnerSettings
from protocol.errors import LongshoreError
from protocol.weights import Lineage, Version, WeightManifest

if TYPE_CHECKING:  # these load torch or megatron
    from torch import Tensor

    from learner.attention import PackedBatch
    from learner.folder import NamedWeight
    from learner.losses import LossResult
    from learner.parallel import Layout
    from learner.qwen import QwenConfig
    from learner.step import Trainer


class NotReadyError(LongshoreError):
    """A rank was used before its setup."""


@dataclass(frozen=True, slots=True)
class _Ready:
    layout: Layout
    config: QwenConfig
    trainer: Trainer


class LearnerRank:
    """See the module."""

    def __init__(
        self,
        settings: LearnerSettings,
        rank: int = 0,
        world: int = 1,
        master_addr: str = "127.0.0.1",
        master_port: int = 0,
    ) -> None:
        self.settings, self.rank, self.world = settings, rank, world
        self._master = (master_addr, master_port)
        self._made: _Ready | None = None

    @property
    def _ready(self) -> _Ready:
        if self._made is None:
            raise NotReadyError("this learner rank is not set up: call setup() first")
        self._made.trainer.wake()
        return self._made

    def setup(self) -> None:
        """Join the group and load the weights of ``settings.model_path``.  Raises UserError where model and settings do
        not fit."""
        from learner import convert, model, parallel
        from learner.qwen import read_config
        from learner.step import Trainer

        folder = Path(self.settings.model_path)
        config = read_config(folder)
        convert.check_folder(folder, config)
        layout = parallel.start(self.settings, self.rank, self.world, *self._master)
        policy = model.build(config, self.settings, layout)
        convert.load_folder(policy, folder, config, _layers(config, layout), layout)
        self._made = _Ready(layout, config, Trainer(policy, config, self.settings, layout))

    def close(self) -> None:
        """Leave the group.  The rank can be set up again."""
        from learner import parallel

        self._made = None
        parallel.stop()

    def sft(self, batch: SftBatch) -> SftReport:
        """One optimizer step of supervised fine-tuning with the batch's learning rate."""
        from learner.sft import sft_step

        return sft_step(self._ready.trainer, batch)

    def sft_run(self, batches: Iterable[SftBatch]) -> list[SftReport]:
        """:meth:`sft` for each batch in order, in one call."""
        return [self.sft(batch) for batch in batches]

    def sleep(self) -> None:
        """Give the device's memory back while somebody else needs it: everything waits on the host, and the next call
        of any method brings it back."""
        self._ready.trainer.sleep()

    def reset_optimizer(self) -> None:
        """Forget Adam's moments, as at the start of reinforcement learning."""
        self._ready.trainer.optimizer.reset()

    def step(self, step: int, payload: list[bytes], lineage: Lineage, using: Version) -> StepReport:
        """Train on a leased batch of whole groups.  ``step`` is the number of the step being taken, ``payload`` what
        :func:`protocol.codec.dumps` wrote, ``using`` the version of the weights that are about to be updated."""
        from learner.batch import read_batch
        from learner.losses import Clip, policy_loss, summarise

        began, ready, settings = time.perf_counter(), self._ready, self.settings
        batch = read_batch(payload, lineage, using, settings)
        metrics = dict(batch.metrics)
        if batch.samples:
            clip = Clip(settings.eps_low, settings.eps_high, settings.dual_clip)

            def loss(logprobs: Tensor, entropy: Tensor, micro: PackedBatch) -> LossResult:
                return policy_loss(
                    logprobs,
                    micro.behaviour,
                    micro.advantages,
                    denominator=batch.denominator,
                    clip=clip,
                    entropy_N=entropy,
                    tis_cap=settings.tis_cap,
                )

            result = ready.trainer.step(batch.samples, loss, settings.lr_at(step), entropy=True)
            metrics |= summarise(result.sums, result.mismatch_max) | {"grad_norm": result.grad_norm}
        metrics |= {
            "updated": float(bool(batch.samples)),
            "lr": settings.lr_at(step),
            "seconds": time.perf_counter() - began,
        }
        return StepReport(step, batch.trained, batch.dropped, batch.ages, metrics, batch.account)

    def publish(self, version: Version, step: int, parent: Version, folder: str) -> WeightManifest | None:
        """Write the weights as a Hugging Face folder.  Rank 0 returns its manifest, the others None."""
        from learner import convert
        from learner.publish import write_folder

        weights = self._export()
        sizes = convert.sizes(self._ready.config, self._ready.trainer.model.config.params_dtype)
        if not self._ready.layout.writes:
            for _ in weights:
                pass
            return None
        return write_folder(
            weights,
            sizes,
            Path(self.settings.model_path),
            Path(folder),
            version=version,
            step=step,
            parent=parent,
            shard_bytes=self.settings.shard_bytes,
        )

    def save(self, folder: str) -> None:
        """Write a sharded checkpoint: weights, optimizer and random state, synced to disk.  The caller writes the
        manifest that makes it count."""
        from learner import checkpoint

        checkpoint.save(self._ready.trainer, self._ready.layout, Path(folder))

    def load(self, folder: str) -> None:
        """Take all state from a checkpoint that :meth:`save` wrote."""
        from learner import checkpoint

        checkpoint.load(self._ready.trainer, self._ready.layout, Path(folder))

    def weights_digest(self) -> str:
        """sha256 over all weights, the same on every rank: equal exactly when they are equal bit for bit."""
        from learner.publish import digest

        return digest(self._export())

    def _export(self) -> Iterable[NamedWeight]:
        from learner.convert import export

        ready = self._ready
        return export(ready.trainer.model, ready.config, ready.layout)


def _layers(config: QwenConfig, layout: Layout) -> range:
    """Global indices of this stage's layers."""
    count = config.num_hidden_layers // layout.pp
    return range(layout.pp_rank * count, (layout.pp_rank + 1) * count)
