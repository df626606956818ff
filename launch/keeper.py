"""Checkpoints beside training: the loop waits for a copy of the learner's state, the rest follows while it goes on.

One at a time.  What a manifest says (step, version, cursor, books, lineage, ledger) is taken with the copy, so that no
later step shows in it.  Only once it stands does the journal hear of it, and may forget what is older than the oldest
checkpoint that a run can go on from.

One that cannot be written (for want of space, say) costs nothing but itself: the run says so and tries again when the
next one is due, and ends at the third in a row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from actors.buffer import Buffer
from actors.remote import Remote
from launch.checkpoints import CheckpointManifest, CheckpointStore, LedgerLine, shards_of
from launch.learners import Learners
from learner.messages import SaveError
from learner.rank import LearnerRank
from protocol.events import EventLog
from protocol.weights import Lineage, Version

_FAILURES_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class Begun:
    """A checkpoint whose state is copied, and not yet on the disk."""

    manifest: CheckpointManifest
    ledger: tuple[LedgerLine, ...]
    learners: Learners
    waited_s: float
    """What training waited for the copy."""


@dataclass(slots=True, kw_only=True)
class Keeper:
    attempt: int
    store: CheckpointStore
    buffer: Remote[Buffer]
    events: EventLog
    learners: Callable[[], Learners]
    kept: int = -1
    """Step of the newest checkpoint."""
    begun: int = -1
    """Step of the newest one that is complete or under way."""
    ledger: list[LedgerLine] = field(default_factory=list[LedgerLine])
    """The steps since the newest checkpoint."""
    _failures: int = 0

    def resumed(self, step: int) -> None:
        """The run goes on from the checkpoint of ``step``."""
        self.kept = self.begun = step
        self.ledger = []

    async def begin(self, step: int, version: Version, lineage: Lineage) -> Begun:
        """Copy the learner's state; no file is touched.  None may be under way."""
        began, learners = time.monotonic(), self.learners()
        await learners.call(LearnerRank.begin_save, str(self.store.shards(step)))
        self.begun = step
        cursor = await self.buffer.call(Buffer.cursor)
        accounting = await self.buffer.call(Buffer.accounting)
        manifest = CheckpointManifest(
            step,
            version,
            self.attempt,
            (cursor or b"").decode(),
            accounting.as_dict(),
            [(entry.version, entry.step, entry.parent) for entry in lineage.entries.values()],
            {},
        )
        return Begun(manifest, tuple(self.ledger), learners, time.monotonic() - began)

    async def complete(self, begun: Begun) -> None:
        """Write what was copied, then the manifest; then tell the buffer what it may forget.  Raises SaveError or
        OSError where that has failed too often."""
        began, step = time.monotonic(), begun.manifest.step
        try:
            await asyncio.to_thread(self.store.begin, step)
            written = await begun.learners.beside(LearnerRank.end_save)
            manifest = replace(begun.manifest, files=shards_of(written))
            checkpoint = await asyncio.to_thread(self.store.finish, manifest, begun.ledger)
        except (SaveError, OSError) as error:
            await self._failed(step, error)
            return
        self._failures, self.kept = 0, step
        self.ledger = self.ledger[len(begun.ledger) :]
        await self.buffer.call(Buffer.commit, step)
        oldest = await asyncio.to_thread(self.store.prune)
        await self.buffer.call(Buffer.compact, oldest)
        self.events.emit(
            "checkpoint.saved",
            step=step,
            path=str(checkpoint.path),
            bytes=sum(file.bytes for file in checkpoint.manifest.files.values()),
            waited_s=round(begun.waited_s, 3),
            written_s=round(time.monotonic() - began, 3),
        )

    async def _failed(self, step: int, error: Exception) -> None:
        self._failures += 1
        self.begun = self.kept
        await asyncio.to_thread(self.store.abandon)
        self.events.emit("checkpoint.failed", step=step, why=str(error), failures=self._failures)
        if self._failures >= _FAILURES_IN_A_ROW or self.kept < 0:
            raise error
