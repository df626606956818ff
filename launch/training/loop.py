"""The training loop: lease a batch, step, mark it trained, publish weights, checkpoint.

It waits for the buffer (a batch of closed groups), for the learner and for a pause that a person asked for; on a
colocated device also for an online evaluation.  Weights and checkpoints are written during the next steps
(:mod:`.state_writer`).

Exactly once: a batch is marked trained at its step in the journal before the next is leased, and only a checkpoint's
manifest makes that final.  When the learner dies, :mod:`.recovery` goes back to the newest checkpoint.

While the loop waits for a batch (:mod:`.batch_leasing`), engines sample parity probes (:mod:`.parity_checker`); a run
that starts out of parity ends before its first step.  On a colocated device (:mod:`launch.weight_sync.colocation`) each
call to the learner first moves the device to it, and the loop gives it back before it waits for a batch.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.actor_group.learner_group import LearnerGroup
from launch.checkpoints.manager import CheckpointManager
from launch.checkpoints.store import Checkpoint, CheckpointStore, LedgerLine, require_intact
from launch.control.step_hooks import StepHooks, TrainingEnding
from launch.evaluation.online.online_evaluator import EvaluationHooks, NoOnlineEvaluation
from launch.run_records.metrics_log import MetricsLog
from launch.training.batch_leasing import BatchLeaser
from launch.training.learner_client import LearnerClient
from launch.training.nonfinite_batches import NonfiniteLimit, save_nonfinite_batch
from launch.training.parity_checker import ParityChecker
from launch.training.recovery import TrainingRecovery
from launch.training.state import TrainingSettings, TrainingState
from launch.training.state_writer import StateWriter
from launch.training.step_recorder import StepRecorder
from launch.training.weight_publisher import VersionPublisher
from launch.weight_sync.colocation import ColocationManager
from launch.weight_sync.manager import WeightSyncManager
from learner.messages import StepReport
from learner.rank import LearnerRank
from protocol.activity import ActivityLog
from protocol.errors import UserError
from protocol.events import EventLog
from protocol.journal import BatchLease
from protocol.processes.task_groups import task_group
from protocol.run_directory.process_log import bind_log_ids, get_logger
from protocol.weights import NO_VERSION, Lineage, WeightVersion

_log = get_logger(__name__)


class TrainingLoop:
    def __init__(
        self,
        *,
        settings: TrainingSettings,
        learners: LearnerGroup,
        start_learners: Callable[[], Awaitable[LearnerGroup]],
        buffer: Remote[TrajectoryBuffer],
        scheduler: Remote[RolloutScheduler],
        weight_sync: WeightSyncManager,
        colocation: ColocationManager,
        checkpoints: CheckpointStore,
        metrics: MetricsLog,
        events: EventLog,
        parity: ParityChecker,
        step_hooks: StepHooks,
        sampled_tokens: Callable[[], Awaitable[int]],
    ) -> None:
        """``start_learners`` replaces ranks that died; ``sampled_tokens`` returns what the engines have sampled."""
        self.state = TrainingState(settings)
        self.buffer, self.weight_sync, self.checkpoints = buffer, weight_sync, checkpoints
        self.events, self.parity, self.step_hooks, self._sampled_tokens = events, parity, step_hooks, sampled_tokens
        self.online_evaluation: EvaluationHooks = NoOnlineEvaluation()
        self._nonfinite = NonfiniteLimit(settings.nonfinite_limit)
        self._activity = ActivityLog(settings.run_dir, "learner", "learner")
        self.learner = LearnerClient(
            ranks=learners,
            start_ranks=start_learners,
            colocation=colocation,
            wait_evaluation_idle=lambda: self.online_evaluation.wait_idle(),  # noqa: PLW0108  it is set later
        )
        self.recorder = StepRecorder(
            run_dir=settings.run_dir, metrics=metrics, events=events, buffer=buffer, sampled_tokens=sampled_tokens
        )
        self.writer = StateWriter(
            state=self.state,
            learner=self.learner,
            publisher=VersionPublisher(
                run_dir=settings.run_dir,
                attempt=settings.attempt,
                weight_sync=weight_sync,
                events=events,
                activity=self._activity,
                copy_weights=self._copy_weights,
            ),
            checkpoint_manager=CheckpointManager(
                attempt=settings.attempt,
                store=checkpoints,
                buffer=buffer,
                events=events,
                learners=lambda: self.learner.ranks,
            ),
            weight_sync=weight_sync,
            on_published=lambda manifest: self.online_evaluation.on_published(manifest),  # noqa: PLW0108  it is set later
            activity=self._activity,
        )
        self._leaser = BatchLeaser(
            state=self.state,
            buffer=buffer,
            scheduler=scheduler,
            writer=self.writer,
            recorder=self.recorder,
            step_hooks=step_hooks,
            events=events,
            sampled_tokens=sampled_tokens,
            release_device=self._release_device,
            sample_parity_probe=self._sample_parity_probe,
        )
        self.recovery = TrainingRecovery(
            state=self.state,
            learner=self.learner,
            writer=self.writer,
            checkpoints=checkpoints,
            buffer=buffer,
            recorder=self.recorder,
            parity=parity,
            events=events,
            online_evaluation=lambda: self.online_evaluation,
        )

    @property
    def step(self) -> int:
        """Optimizer steps taken so far."""
        return self.state.step

    @property
    def version(self) -> WeightVersion:
        """Version of the learner's current weights."""
        return self.writer.publisher.version

    @property
    def colocation(self) -> ColocationManager:
        return self.learner.colocation

    @property
    def lineage(self) -> Lineage:
        return self.writer.publisher.lineage

    # -- the loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Train until the last step or a stop condition; the last weights are checkpointed and given to the engines."""
        sampled = await self._sampled_tokens()
        self._leaser.start(sampled)
        self.recorder.start(sampled)
        async with task_group() as group:
            self.writer.open(group)
            activity = group.create_task(self._activity.write_periodically())
            try:
                await self.recovery.run_steps(self._run_step)
            finally:
                activity.cancel()
                self.step_hooks.close()
                await self.writer.close()

    async def _run_step(self) -> bool:
        """Train on the next batch; return false once there is none and the last state is written."""
        await self._release_device()
        waiting_since, paused_before = time.monotonic(), self.step_hooks.paused_s
        if self.step < self.state.settings.steps:
            with self._activity.track("waiting"):
                lease = await self._leaser.lease_batch()
            if lease is not None:
                with bind_log_ids(step=self.step + 1):
                    _log.info("batch leased", groups=[group.group for group in lease.groups])
                    paused_s = self.step_hooks.paused_s - paused_before
                    await self._train_batch(lease, time.monotonic() - waiting_since - paused_s)
                return True
        self.state.ending = self.state.ending or TrainingEnding.STEPS
        return await self._write_last_state()

    async def _train_batch(self, lease: BatchLease, wait_s: float) -> None:
        """Take a step on ``lease``, mark it trained, publish and checkpoint what is due.  Nothing is trained if all of
        the batch is too old or its update is not finite."""
        state, step = self.state, self.step + 1
        await self._compare_parity_probe()
        self.parity.before_step(step)
        started_at = time.monotonic()
        with self._activity.track("training"):
            report = await self.learner.call(
                LearnerRank.step,
                step,
                self.buffer.submit(TrajectoryBuffer.read_payload, lease).argument(),
                self.lineage,
                self.version,
            )
        nonfinite_folder = await self._save_if_nonfinite(report, lease)
        await self.buffer.call(TrajectoryBuffer.mark_trained, step, list(report.trained), dict(report.dropped))
        await self.recorder.write_trained_log(report, self.version)
        if not report.trained:
            self._report_skipped(report, lease, nonfinite_folder)
            return
        self._nonfinite.record_finite()
        self._advance(report)
        if step % state.settings.publish_every == 0:
            await self.writer.publish_in_background()
        else:
            self.writer.publisher.new_version(step)
        statistics = await self.buffer.call(TrajectoryBuffer.statistics)
        await self.recorder.write_step(
            step,
            report,
            statistics,
            groups=len(lease.groups),
            wait_s=wait_s,
            step_s=time.monotonic() - started_at,
            pause_ms=self.weight_sync.pause_ms,
            parity=self.parity.take_result(),
            score=self.online_evaluation.take_score(),
        )
        self.parity.check_step_metrics(report.metrics)
        if step % state.settings.checkpoint_every == 0 or statistics.wants_checkpoint:
            await self.writer.checkpoint_in_background()
        self.weight_sync.run_state.record_step_time(time.monotonic() - started_at)

    def _advance(self, report: StepReport) -> None:
        """Count the step that was taken, and add it to the next checkpoint's ledger."""
        state, dropped = self.state, {name: reason.value for name, reason in report.dropped.items()}
        state.step += 1
        state.batch_fill.record_step(len(dropped))
        self.weight_sync.run_state.set_dropped_groups(state.batch_fill.dropped_groups)
        line = LedgerLine(state.step, self.version, tuple(report.trained), dropped)
        self.writer.checkpoint_manager.ledger.append(line)

    def _report_skipped(self, report: StepReport, lease: BatchLease, nonfinite_folder: Path | None) -> None:
        """Report a batch of which nothing was trained.  Raises UserError after too many non-finite ones in a row."""
        for reason, episodes in Counter(report.dropped.values()).items():
            self.events.emit("batch.skipped", groups=len(lease.groups), episodes=episodes, reason=reason.value)
        if nonfinite_folder is not None:
            self._nonfinite.record_nonfinite(nonfinite_folder)

    async def _save_if_nonfinite(self, report: StepReport, lease: BatchLease) -> Path | None:
        """Save a batch with a non-finite update and return its folder; None if all updates were finite."""
        skipped = int(report.metrics.get("nonfinite_updates", 0))
        if not skipped:
            return None
        payload = await self.buffer.call(TrajectoryBuffer.read_payload, lease)
        folder = await asyncio.to_thread(
            save_nonfinite_batch, self.state.settings.run_dir, report.step, lease.trajectory_ids, payload
        )
        self.events.emit("learner.nonfinite", step=report.step, updates=skipped, path=str(folder))
        return folder

    async def _write_last_state(self) -> bool:
        """Checkpoint and publish the last step; return whether its checkpoint has to be tried again."""
        await self.writer.checkpoint_in_background()
        if not self.writer.publisher.is_published:
            await self.writer.publish_in_background()
        await self._release_device()
        await self.writer.wait_published()
        await self.writer.wait_saved()
        return self.writer.checkpoint_manager.newest_step < self.step

    # -- parity and the device -----------------------------------------------------------------------------------

    async def _sample_parity_probe(self) -> None:
        """Let engines sample a parity probe if one is due; its comparison waits for the step on a colocated device."""
        await self.parity.sample_probe(self.step, self.version, self.weight_sync.engines)
        if not self.colocation.colocated:
            await self._compare_parity_probe()

    async def _compare_parity_probe(self) -> None:
        """Compare a sampled probe with the learner's log-probabilities.  Raises UserError if a run starts out of
        parity."""
        await self.parity.compare_probe(
            self.step, self.version, lambda sequences: self.learner.call(LearnerRank.logprobs, sequences)
        )

    async def _release_device(self) -> None:
        """Give a colocated device back to the engines, which go on with the weights published last."""
        if self.colocation.learner_active:
            await self.learner.offload()
            await self.writer.wait_published()
            await self.colocation.switch_to_rollout()

    async def _copy_weights(self) -> LearnerGroup:
        await self.learner.call(LearnerRank.begin_publish)
        return self.learner.ranks

    # -- requests of others --------------------------------------------------------------------------------------

    async def checkpoint_now(self) -> int:
        """Begin a checkpoint of the current step between two steps, unless there is one, and return the step."""
        await self.writer.checkpoint_in_background()
        return self.step

    async def wait_checkpoint(self, step: int) -> None:
        """Wait for the checkpoint of ``step`` that was begun.  Raises UserError if it could not be written."""
        await self.writer.wait_save_ended()
        if self.writer.checkpoint_manager.newest_step < step:
            raise UserError(f"the checkpoint of step {step} could not be written: `longshore monitor RUN` shows why")

    async def export_checkpoint(self, checkpoint: Checkpoint, folder: Path) -> None:
        """Write the weights of ``checkpoint`` as a Hugging Face folder, with adapters merged.  Only after training: the
        learner holds these weights afterwards.  Raises UserError, InfraError and OSError."""
        manifest = checkpoint.manifest
        await asyncio.to_thread(require_intact, checkpoint)
        await self.learner.call(LearnerRank.load, str(checkpoint.learner))
        version = WeightVersion(manifest.version)
        await self.learner.call(LearnerRank.publish, version, manifest.step, NO_VERSION, str(folder))
        await self.learner.offload()
