"""The training loop: an optimizer step per batch of the plan, periodic checkpoints, and exported folders at the end.

Batch and learning rate of a step follow from its number alone, and a checkpoint has everything else, so a killed run
resumes from the newest one exactly.  Exported folders appear whole, after the last checkpoint.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from rich.console import Console

from launch.actor_group.learner_group import LearnerGroup
from launch.checkpoints.store import Checkpoint, CheckpointManifest, CheckpointStore, shard_digests
from launch.config import SftConfig
from launch.data.batch_plan import BatchPlan
from launch.data.sft_examples import SftDataset, build_sft_batch, token_sequences
from launch.processes.background_tasks import BackgroundSlot
from launch.run_records.metrics_log import read_metrics
from launch.sft.exports import SftExports
from launch.sft.learning_rate import scheduled_learning_rate
from launch.sft.preparation import SftInputs
from learner.messages import SftReport
from learner.rank import LearnerRank
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.files.filesystem import append_atomically, cut_torn_line
from protocol.processes.task_groups import task_group
from protocol.run_directory.layout import METRICS_FILE
from protocol.weights import WeightVersion


@dataclass(slots=True, kw_only=True)
class SftTrainer:
    """Takes the steps of a supervised run's plan, and writes its checkpoints and exports."""

    config: SftConfig
    inputs: SftInputs
    run_dir: Path
    start_number: int
    exports: SftExports
    learners: LearnerGroup
    store: CheckpointStore
    console: Console
    step: int = 0
    plan: BatchPlan = field(init=False)

    def __post_init__(self) -> None:
        sft = self.config.sft
        self.plan = BatchPlan(len(self.inputs.training.examples), sft.epochs, sft.batch_size, self.config.run.seed)

    async def run(self, checkpoint: Checkpoint | None) -> dict[str, JsonValue]:
        """Train from the start or from ``checkpoint``, export, and return the summary."""
        cut_torn_line(self.run_dir / METRICS_FILE)
        if checkpoint is not None:
            self.step = checkpoint.manifest.step
            await self.learners.call(LearnerRank.load, str(checkpoint.learner))
        self._append({"rewound_to": self.step} if checkpoint else {"step": 0, **await self._held_out_loss()})
        async with task_group() as group:
            writing = BackgroundSlot(group)
            while self.step < self.plan.steps:
                await self._train_step(self.step + 1)
                if self._is_due(self.config.checkpoint.every_steps):
                    await self._begin_checkpoint(writing)
                writing.raise_if_failed()
            await writing.join()
        digest = await self.learners.call(LearnerRank.weights_digest)
        await self.exports.write(self.learners, self.step, digest)
        return self._summary(digest)

    def _is_due(self, every_steps: int) -> bool:
        return self.step == self.plan.steps or (every_steps > 0 and self.step % every_steps == 0)

    # -- a step --------------------------------------------------------------------------------------------------

    async def _train_step(self, step: int) -> None:
        examples, lr = self.inputs.training.examples, scheduled_learning_rate(self.config, step, self.plan.steps)
        batch = build_sft_batch([examples[index] for index in self.plan.batch(step)], lr)
        try:
            report = await self.learners.call(LearnerRank.sft, batch)
        except FloatingPointError as error:
            raise UserError(
                f"step {step}: {error} (learner.lr, or more learner.lr_warmup_steps), and start over"
            ) from error
        self.step = step
        held_out = await self._held_out_loss() if self._is_due(self.config.sft.eval_every_steps) else {}
        self._report_step(report, lr, held_out)

    def _report_step(self, report: SftReport, lr: float, held_out: dict[str, float]) -> None:
        epoch = self.step / self.plan.steps_per_epoch
        line = {
            "step": self.step,
            "epoch": round(epoch, 4),
            "loss": report.loss,
            "lr": lr,
            "grad_norm": report.grad_norm,
            "tokens": report.tokens,
            "trained_tokens": report.trained_tokens,
            "seconds": round(report.seconds, 4),
            "tokens_per_s": round(report.tokens / report.seconds, 1),
        }
        self._append({**line, **held_out})
        parts = [
            f"step {self.step}/{self.plan.steps}",
            f"epoch {epoch:.2f}",
            f"loss {report.loss:.4f}",
            *(f"held-out {loss:.4f}" for loss in held_out.values()),
            f"lr {lr:.2g}",
            f"{line['tokens_per_s']:,.0f} tokens/s",
        ]
        self.console.print(" · ".join(parts))

    async def _held_out_loss(self) -> dict[str, float]:
        """Return ``eval_loss``, training's weighted mean over the held-out sequences; nothing without any."""
        found, size = self.inputs.held_out.examples, self.config.sft.batch_size
        if not found:
            return {}
        total = sum(example.weight * example.trained_tokens for example in found)
        loss = 0.0
        for first in range(0, len(found), size):
            batch = found[first : first + size]
            sums = await self.learners.call(LearnerRank.log_likelihoods, token_sequences(batch))
            loss -= sum(example.weight / total * each for example, each in zip(batch, sums, strict=True))
        return {"eval_loss": loss}

    def _append(self, line: dict[str, float]) -> None:
        append_atomically(self.run_dir / METRICS_FILE, orjson.dumps({**line, "t": round(time.time(), 3)}) + b"\n")

    # -- checkpoints and summary -------------------------------------------------------------------------------------

    async def _begin_checkpoint(self, writing: BackgroundSlot) -> None:
        """Wait until the state is copied; the copy is written during the next steps."""
        await writing.join()
        step = self.step
        await self.learners.call(LearnerRank.begin_save, str(self.store.shards_folder(step)))
        await writing.start(lambda: self._finish_checkpoint(step))

    async def _finish_checkpoint(self, step: int) -> None:
        await asyncio.to_thread(self.store.begin, step)
        written = await self.learners.call_concurrently(LearnerRank.end_save)
        manifest = CheckpointManifest(step, WeightVersion(0), self.start_number, {}, [], shard_digests(written))
        await asyncio.to_thread(self.store.finish, manifest, ())
        await asyncio.to_thread(self.store.prune)

    def _summary(self, digest: str) -> dict[str, JsonValue]:
        lines = read_metrics(self.run_dir)
        trained = [line for line in lines if "loss" in line]
        held_out = [line["eval_loss"] for line in lines if "eval_loss" in line]
        tokens, seconds = (sum(line[name] for line in trained) for name in ("tokens", "seconds"))
        return {
            **self.exports.summary(),
            "weights_digest": digest,
            "steps": self.step,
            "epochs": self.plan.epochs,
            "data": summarise_dataset(self.inputs.training),
            "loss_first": trained[0]["loss"],
            "loss_last": trained[-1]["loss"],
            **({"eval_loss_before": held_out[0], "eval_loss_after": held_out[-1]} if held_out else {}),
            "tokens_trained_on": int(tokens),
            "tokens_per_s": round(tokens / max(seconds, 1e-9), 1),
        }


def summarise_dataset(examples: SftDataset) -> dict[str, JsonValue]:
    """Return counts of a data set for a summary."""
    return {
        "sequences": len(examples.examples),
        "tokens": sum(len(example.token_ids) for example in examples.examples),
        "trained_tokens": sum(example.trained_tokens for example in examples.examples),
        "excluded": {why.value: count for why, count in examples.exclusions.items()},
        "truncated": examples.truncated,
    }
