"""Writes checkpoints in the background: the training loop waits only until the learner's state is copied.

One checkpoint is written at a time.  The contents of its manifest (step, version, sampler state, accounting, lineage,
ledger) are taken with the copy, so that no later step shows in it.  Once the checkpoint is complete the journal commits
its step and drops what is older than the oldest checkpoint that a run can resume from.

A checkpoint that cannot be written, for lack of space for example, is an event; the next one is tried when it is due.
The third failure in a row ends the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from launch.actor_group.learner_group import LearnerGroup
from launch.checkpoints.store import CheckpointManifest, CheckpointStore, LedgerLine, shard_digests
from learner.messages import CheckpointSaveError
from learner.rank import LearnerRank
from protocol.events import EventLog
from protocol.weights import Lineage, WeightVersion

_FAILURES_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class PendingCheckpoint:
    """A checkpoint whose state is copied but not yet written."""

    manifest: CheckpointManifest
    ledger: tuple[LedgerLine, ...]
    learners: LearnerGroup
    waited_s: float
    """Seconds that training waited for the copy."""


@dataclass(slots=True, kw_only=True)
class CheckpointManager:
    """Writes checkpoints in the background, one at a time, with the ledger of the steps before each."""

    start_number: int
    store: CheckpointStore
    buffer: Remote[TrajectoryBuffer]
    events: EventLog
    learners: Callable[[], LearnerGroup]
    newest_step: int = -1
    """Step of the newest checkpoint."""
    newest_begun_step: int = -1
    """Step of the newest checkpoint that is complete or being written."""
    ledger: list[LedgerLine] = field(default_factory=list[LedgerLine])
    """Lines of the steps since the newest checkpoint."""
    _failures: int = 0

    def resume_from(self, step: int) -> None:
        """Continue from the checkpoint of ``step``."""
        self.newest_step = self.newest_begun_step = step
        self.ledger = []

    async def begin(self, step: int, version: WeightVersion, lineage: Lineage) -> PendingCheckpoint:
        """Copy the learner's state; writes no file.  No other checkpoint may be in progress."""
        started_at, learners = time.monotonic(), self.learners()
        await learners.call(LearnerRank.begin_save, str(self.store.shards_folder(step)))
        self.newest_begun_step = step
        accounting = await self.buffer.call(TrajectoryBuffer.accounting)
        manifest = CheckpointManifest(
            step,
            version,
            self.start_number,
            accounting.as_dict(),
            [(entry.version, entry.step, entry.parent) for entry in lineage.entries.values()],
            {},
        )
        return PendingCheckpoint(manifest, tuple(self.ledger), learners, time.monotonic() - started_at)

    async def complete(self, begun: PendingCheckpoint) -> None:
        """Write what was copied, then the manifest; then commit the step in the journal.  Raises CheckpointSaveError or
        OSError after too many failures in a row."""
        started_at, step = time.monotonic(), begun.manifest.step
        try:
            await asyncio.to_thread(self.store.begin, step)
            written = await begun.learners.call_concurrently(LearnerRank.end_save)
            manifest = replace(begun.manifest, files=shard_digests(written))
            checkpoint = await asyncio.to_thread(self.store.finish, manifest, begun.ledger)
        except (CheckpointSaveError, OSError) as error:
            await self._failed(step, error)
            return
        self._failures, self.newest_step = 0, step
        self.ledger = self.ledger[len(begun.ledger) :]
        await self.buffer.call(TrajectoryBuffer.commit_step, step)
        oldest = await asyncio.to_thread(self.store.prune)
        await self.buffer.call(TrajectoryBuffer.compact_before, oldest)
        self.events.emit(
            "checkpoint.saved",
            step=step,
            path=str(checkpoint.path),
            bytes=sum(file.bytes for file in checkpoint.manifest.files.values()),
            waited_s=round(begun.waited_s, 3),
            written_s=round(time.monotonic() - started_at, 3),
        )

    async def _failed(self, step: int, error: Exception) -> None:
        self._failures += 1
        self.newest_begun_step = self.newest_step
        await asyncio.to_thread(self.store.abandon)
        self.events.emit("checkpoint.failed", step=step, why=str(error), failures=self._failures)
        if self._failures >= _FAILURES_IN_A_ROW or self.newest_step < 0:
            raise error
