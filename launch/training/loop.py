"""The training loop: lease a batch, step, mark it trained, publish weights, checkpoint.

It waits for a batch of closed groups (:mod:`.batch_leasing`, where a person's pause takes effect) and for the learner;
on a colocated device also for an online evaluation and for the engines to take the device back.  Weights and
checkpoints are written during the next steps (:mod:`.state_writer`).

Exactly once: a batch is marked trained at its step in the journal before the next is leased, and only a checkpoint's
manifest makes that final.  When the learner dies, :mod:`.recovery` goes back to the newest checkpoint.

On a colocated device (:mod:`launch.weight_sync.colocation`) each call to the learner first moves the device to it, and
the loop gives it back before it waits for a batch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from launch.checkpoints.store import LedgerLine
from launch.control.scheduler_state import SchedulerStateSender
from launch.training.batch_leasing import BatchLeaser, LeasedBatch
from launch.training.learner_client import LearnerClient
from launch.training.parity_checker import ParityChecker
from launch.training.recovery import TrainingRecovery
from launch.training.skipped_batches import SkippedBatches
from launch.training.state import TrainingState
from launch.training.state_writer import StateWriter
from launch.training.step_recorder import StepRecorder
from learner.messages import StepReport
from learner.rank import LearnerRank
from protocol.activity import ActivityLog
from protocol.errors import UserError
from protocol.journal import BatchLease
from protocol.processes.task_groups import task_group
from protocol.run_directory.process_log import bind_log_ids, get_logger
from protocol.weights import Lineage, WeightVersion

_log = get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class TrainingLoop:
    """Takes the optimizer steps of a run.  :mod:`launch.run.training_setup` builds its parts."""

    state: TrainingState
    buffer: Remote[TrajectoryBuffer]
    learner: LearnerClient
    leaser: BatchLeaser
    writer: StateWriter
    recorder: StepRecorder
    parity: ParityChecker
    skipped: SkippedBatches
    recovery: TrainingRecovery
    scheduler_state: SchedulerStateSender
    activity: ActivityLog

    @property
    def step(self) -> int:
        """Optimizer steps taken so far."""
        return self.state.step

    @property
    def version(self) -> WeightVersion:
        """Version of the learner's current weights."""
        return self.writer.publisher.version

    @property
    def lineage(self) -> Lineage:
        return self.writer.publisher.lineage

    # -- the loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Train until the last step or a stop condition; the last weights are checkpointed and given to the engines."""
        await self.leaser.stop_conditions.start()
        await self.recorder.start()
        async with task_group() as group:
            self.writer.open(group)
            activity = group.create_task(self.activity.write_periodically())
            try:
                await self.recovery.run_steps(self._run_step)
            finally:
                activity.cancel()
                self.leaser.step_hooks.close()
                await self.writer.close()

    async def _run_step(self) -> bool:
        """Train on the next batch; return false once there is none and the last state is written."""
        await self.writer.release_device()
        leased = await self.leaser.lease_batch()
        if leased is None:
            return await self._write_last_state()
        with bind_log_ids(step=self.step + 1):
            _log.info("batch leased", groups=[group.group for group in leased.lease.groups])
            await self._train_batch(leased)
        return True

    async def _train_batch(self, leased: LeasedBatch) -> None:
        """Take a step, mark the batch trained, publish and checkpoint what is due.  Nothing is trained if all of the
        batch is too old or its update is not finite."""
        state, lease, step = self.state, leased.lease, self.step + 1
        await self.parity.before_step(self.step, self.version)
        started_at = time.monotonic()
        report = await self._take_step(step, lease)
        nonfinite_folder = await self.skipped.save_if_nonfinite(report, lease)
        await self.buffer.call(TrajectoryBuffer.mark_trained, step, list(report.trained), dict(report.dropped))
        await self.recorder.write_trained_log(report, self.version)
        self.recorder.report_faults(report)
        if not report.trained:
            self.skipped.record_skipped(report, lease, nonfinite_folder)
            return
        self.skipped.record_trained()
        self._advance(report)
        if step % state.config.publish_every == 0:
            await self.writer.publish_in_background()
        else:
            self.writer.publisher.new_version(step)
        statistics = await self.buffer.call(TrajectoryBuffer.statistics)
        await self.recorder.write_step(
            step,
            report,
            statistics,
            groups=len(lease.groups),
            wait_s=leased.wait_s,
            step_s=time.monotonic() - started_at,
        )
        if step % state.config.checkpoint.every_steps == 0 or statistics.wants_checkpoint:
            await self.writer.checkpoint_in_background()
        self.scheduler_state.record_step_time(time.monotonic() - started_at)

    async def _take_step(self, step: int, lease: BatchLease) -> StepReport:
        # The payload goes from the buffer to the ranks by reference: it is not fetched here.
        payload = self.buffer.submit(TrajectoryBuffer.read_payload, lease).argument()
        with self.activity.track("training"):
            return await self.learner.call(LearnerRank.step, step, payload, self.lineage, self.version)

    def _advance(self, report: StepReport) -> None:
        """Count the step that was taken, and add it to the next checkpoint's ledger."""
        state, dropped = self.state, {name: reason.value for name, reason in report.dropped.items()}
        state.step += 1
        state.batch_fill.record_step(len(dropped))
        self.scheduler_state.set_dropped_groups(state.batch_fill.dropped_groups)
        line = LedgerLine(state.step, self.version, tuple(report.trained), dropped)
        self.writer.checkpoint_manager.ledger.append(line)

    async def _write_last_state(self) -> bool:
        """Checkpoint and publish the last step; return whether its checkpoint has to be tried again."""
        await self.writer.checkpoint_in_background()
        if not self.writer.publisher.is_published:
            await self.writer.publish_in_background()
        await self.writer.release_device()
        await self.writer.wait_published()
        await self.writer.wait_saved()
        return self.writer.checkpoint_manager.newest_step < self.step

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
