"""The run's own actors and checkpoints, with points at which their processes may be killed, and the scripted engine in
the place of SGLang."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actors.buffer import Buffer
from launch.bench.chaos.fake_engine import FakeEngine
from launch.bench.chaos.points import Point, Process, reached
from launch.checkpoints import Checkpoint, CheckpointManifest, CheckpointStore, LedgerLine
from launch.crew import Crew
from learner.messages import StepReport
from learner.rank import LearnerRank
from protocol.digests import FileDigest
from protocol.journal import AppendOutcome
from protocol.stream import Received
from protocol.weights import Lineage, Version


class MortalBuffer(Buffer):
    async def _append(self, items: Sequence[Received]) -> Sequence[AppendOutcome]:
        outcomes = await super()._append(items)
        reached(Point.APPEND_ACK, Process.BUFFER)
        return outcomes

    async def commit(self, step: int) -> None:
        reached(Point.MANIFEST_COMMIT, Process.BUFFER)
        await super().commit(step)

    async def compact(self, oldest_kept_step: int) -> None:
        reached(Point.COMMIT_COMPACT, Process.BUFFER)
        await super().compact(oldest_kept_step)


class MortalLearnerRank(LearnerRank):
    def step(self, step: int, payload: list[bytes], lineage: Lineage, using: Version) -> StepReport:
        reached(Point.LEASE_STEP, Process.LEARNER)
        return super().step(step, payload, lineage, using)

    def begin_save(self, folder: str) -> None:
        reached(Point.STEP_SHARD, Process.LEARNER)
        super().begin_save(folder)

    def end_save(self) -> dict[str, FileDigest]:
        written = super().end_save()
        reached(Point.SHARDS_MANIFEST, Process.LEARNER)
        return written


class MortalCheckpoints(CheckpointStore):
    """The driver's: its process ends here."""

    def finish(self, manifest: CheckpointManifest, ledger: Iterable[LedgerLine]) -> Checkpoint:
        checkpoint = super().finish(manifest, ledger)
        reached(Point.MANIFEST_COMMIT, Process.DRIVER)
        return checkpoint

    def prune(self) -> int:
        reached(Point.COMMIT_COMPACT, Process.DRIVER)
        return super().prune()


CREW = Crew(buffer=MortalBuffer, engine=FakeEngine, learner=MortalLearnerRank, checkpoints=MortalCheckpoints)
CLASSES = {
    Process.WORKER: CREW.worker.__name__,
    Process.BUFFER: CREW.buffer.__name__,
    Process.CONDUCTOR: CREW.conductor.__name__,
    Process.LEARNER: CREW.learner.__name__,
}
"""What Ray calls the processes of those that are killed at random."""
