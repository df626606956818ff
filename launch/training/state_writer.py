"""Writes the learner's state during the next steps: weights for the engines, and checkpoints.

Training waits only for a copy of the state.  One publication and one checkpoint are written at a time; each starts when
the one before it is written.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from launch.checkpoints.manager import CheckpointManager, PendingCheckpoint
from launch.evaluation.held_out.online_evaluator import EvaluationHooks
from launch.processes.background_tasks import BackgroundSlot
from launch.training.learner_client import LearnerClient
from launch.training.state import TrainingState
from launch.training.weight_publisher import WeightPublisher
from launch.weight_sync.manager import WeightSyncManager
from protocol.activity import ActivityLog
from protocol.weights import WeightManifest

_LAST_WRITES_S = 60.0
"""Longest wait for running writes when a run is interrupted."""


@dataclass(slots=True, kw_only=True)
class StateWriter:
    """Starts to write weights and checkpoints after a step, and waits for them where the loop has to."""

    state: TrainingState
    learner: LearnerClient
    publisher: WeightPublisher
    checkpoint_manager: CheckpointManager
    weight_sync: WeightSyncManager
    online_evaluation: EvaluationHooks
    activity: ActivityLog
    _publishing: BackgroundSlot = field(init=False)
    _saving: BackgroundSlot = field(init=False)

    def open(self, group: asyncio.TaskGroup) -> None:
        """Write in tasks of ``group`` from now on."""
        self._publishing, self._saving = BackgroundSlot(group), BackgroundSlot(group)

    async def close(self) -> None:
        """Wait a limited time for running writes and ignore their errors."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WRITES_S):
                await self._publishing.wait_done()
                await self._saving.wait_done()

    # -- weights -------------------------------------------------------------------------------------------------

    async def publish(self) -> WeightManifest:
        """Write the current weights under a new version, and delete older versions that no engine uses any more."""
        return await self.publisher.write_version(await self.publisher.copy_weights())

    async def publish_in_background(self) -> None:
        """Publish the current weights during the next steps and give them to the engines."""
        await self._publishing.join()
        copied = await self.publisher.copy_weights()

        async def write_and_announce() -> None:
            await self.announce_weights(await self.publisher.write_version(copied))

        await self._publishing.start(write_and_announce)

    async def announce_weights(self, manifest: WeightManifest) -> None:
        """Give published weights to the engines, and to an evaluation if one of them is due."""
        await self.weight_sync.set_newest(manifest)
        await self.online_evaluation.on_published(manifest)

    async def wait_published(self) -> None:
        """Wait for the running publication.  Raises its error."""
        await self._publishing.join()

    async def release_device(self) -> None:
        """Give a colocated device back to the engines, which go on with the weights published last."""
        if self.learner.colocation.learner_active:
            await self.learner.offload()
            await self.wait_published()
            await self.learner.colocation.switch_to_rollout()

    # -- checkpoints ---------------------------------------------------------------------------------------------

    async def save_initial_checkpoint(self) -> None:
        """Write the checkpoint of the current step and wait for it."""
        await self.checkpoint_manager.complete(await self._begin_checkpoint())

    async def checkpoint_in_background(self) -> None:
        """Write a checkpoint of the current step during the next steps, unless it exists or is being written."""
        if self.checkpoint_manager.newest_begun_step == self.state.step:
            return
        await self._saving.join()
        begun = await self._begin_checkpoint()

        async def complete() -> None:
            with self.activity.track("saving"):
                await self.checkpoint_manager.complete(begun)

        await self._saving.start(complete)

    async def _begin_checkpoint(self) -> PendingCheckpoint:
        await self.learner.acquire_device()
        return await self.checkpoint_manager.begin(self.state.step, self.publisher.version, self.publisher.lineage)

    async def wait_saved(self) -> None:
        """Wait for the running checkpoint.  Raises its error."""
        await self._saving.join()

    async def wait_save_ended(self) -> None:
        """Wait for the checkpoint that is being written, however it ends."""
        await self._saving.wait_done()

    # -- errors --------------------------------------------------------------------------------------------------

    def raise_if_failed(self) -> None:
        """Raise the error of a background write, if one failed."""
        self._publishing.raise_if_failed()
        self._saving.raise_if_failed()

    async def discard_results(self) -> None:
        """Wait for running writes and drop their errors, because the learner that they copied has died."""
        await self._publishing.discard_result()
        await self._saving.discard_result()
