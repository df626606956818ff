"""The start of training from first weights or a checkpoint, and its recovery when the learner dies.

A learner that dies is started again from the newest checkpoint: the journal is rewound to it, and its weights get a new
version.  One that dies several times without a step in between dies of its work, and the run ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from launch.checkpoints.store import Checkpoint, CheckpointStore, require_journal_covers
from launch.control.scheduler_state import SchedulerStateSender
from launch.evaluation.held_out.online_evaluator import EvaluationHooks
from launch.training.learner_client import LearnerClient
from launch.training.parity_checker import ParityChecker
from launch.training.state import TrainingState
from launch.training.state_writer import StateWriter
from launch.training.step_recorder import StepRecorder
from learner.losses.settings import KlPenaltySettings
from learner.rank import LearnerRank
from protocol.events import EventLog
from protocol.journal.repair import JOURNAL_FILE
from protocol.weights import WeightManifest, WeightVersion

T = TypeVar("T")

_REFERENCE_FOLDER = "reference"
"""Folder of the frozen weights of a KL penalty."""
_MAX_DEATHS_IN_A_ROW = 3


@dataclass(slots=True, kw_only=True)
class TrainingRecovery:
    """Prepares the first step, and continues from the newest checkpoint when the learner dies."""

    state: TrainingState
    learner: LearnerClient
    writer: StateWriter
    checkpoints: CheckpointStore
    buffer: Remote[TrajectoryBuffer]
    recorder: StepRecorder
    parity: ParityChecker
    events: EventLog
    online_evaluation: EvaluationHooks
    scheduler_state: SchedulerStateSender

    async def retry_with_new_learners(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``work``, which is done again from the start with new ranks when one dies.  For work
        before the first step."""
        deaths, lost = 0, False
        while True:
            try:
                if lost:
                    self.learner.ranks = await self.learner.start_ranks()
                lost = False
                return await work()
            except RemoteError as error:
                deaths += 1
                if not _is_learner(error) or deaths > _MAX_DEATHS_IN_A_ROW:
                    raise
                self.events.emit("process.died", what=error.actor, why=error.why)
                lost = True

    async def publish_initial_weights(self) -> WeightManifest:
        """Publish the learner's first weights and write them as the checkpoint of step 0."""
        await self.writer.publisher.delete_partial()
        await self._freeze_reference()
        manifest = await self.writer.publish()
        await self.writer.save_initial_checkpoint()
        await self.learner.offload()
        return manifest

    async def resume_from(self, checkpoint: Checkpoint) -> WeightManifest:
        """Continue from ``checkpoint``: its weights under a new version, the journal rewound to its step.  Raises
        UserError if the journal is older than the checkpoint."""
        state, publisher, manifest = self.state, self.writer.publisher, checkpoint.manifest
        await publisher.delete_partial()
        await self.learner.call(LearnerRank.load, str(checkpoint.learner))
        await self._freeze_reference()
        state.restore(manifest.step, sum(len(line.dropped) for line in checkpoint.ledger()))
        await self.online_evaluation.on_rollback(state.step)
        await asyncio.to_thread(self.checkpoints.drop_scores_after, state.step)
        self.parity.reset()
        self.writer.checkpoint_manager.resume_from(state.step)
        publisher.resume_from(WeightVersion(manifest.version), checkpoint.lineage)
        self.scheduler_state.set_dropped_groups(state.batch_fill.dropped_groups)
        await self.buffer.call(TrajectoryBuffer.rewind_to_step, state.step)
        accounting = await self.buffer.call(TrajectoryBuffer.accounting)
        require_journal_covers(state.run_dir / JOURNAL_FILE, accounting, manifest)
        await self.buffer.call(TrajectoryBuffer.commit_step, state.step)  # the driver may have died before it did
        await self.recorder.rewind(state.step)
        published = await self.writer.publish()
        await self.learner.offload()
        return published

    async def run_steps(self, run_step: Callable[[], Awaitable[bool]]) -> None:
        """Call ``run_step`` until it returns false, from the newest checkpoint again whenever the learner dies."""
        deaths, failure, is_over, farthest = 0, None, False, self.state.step
        while not is_over:
            try:
                if failure is not None:
                    await self._restart_learner(failure)
                failure, is_over = None, not await run_step()
                if self.state.step > farthest:  # steps that are taken again do not count as progress
                    farthest, deaths = self.state.step, 0
            except RemoteError as error:
                deaths += 1
                if not _is_learner(error) or deaths > _MAX_DEATHS_IN_A_ROW:
                    raise
                failure = error

    async def _restart_learner(self, error: RemoteError) -> None:
        """Start the learner from the newest checkpoint, which may be the one that was being written."""
        self.events.emit("process.died", what=error.actor, why=error.why)
        await self.learner.restart()
        await self.writer.discard_results()
        checkpoint = await asyncio.to_thread(self.checkpoints.newest_intact)
        if checkpoint is None:
            raise error
        await self.writer.announce_weights(await self.resume_from(checkpoint))
        self.events.emit("learner.restarted", step=self.state.step)

    async def _freeze_reference(self) -> None:
        """Freeze the configured reference, or the weights that reinforcement learning started from: they are written
        for a learner that is restarted."""
        kl = self.state.config.kl
        if kl.coefficient > 0:
            folder = reference_folder(kl, self.state.run_dir)
            is_missing = kl.reference is None and not folder.exists()
            await self.learner.call(LearnerRank.freeze_reference, str(folder), is_missing)


def reference_folder(kl: KlPenaltySettings, run_dir: Path) -> Path:
    """Return the folder of the KL penalty's reference: the configured one, or the run's own."""
    return run_dir / _REFERENCE_FOLDER if kl.reference is None else kl.reference.absolute()


def _is_learner(error: RemoteError) -> bool:
    return error.actor.rpartition("/")[2].startswith("learner-")
