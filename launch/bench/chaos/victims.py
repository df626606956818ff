"""The run's own actors, with points at which they may be killed, and the scripted engine in the place of SGLang."""

from __future__ import annotations

from collections.abc import Sequence

from actors.buffer import Buffer
from launch.bench.chaos.fake_engine import FakeEngine
from launch.bench.chaos.points import Point, Process, reached
from launch.crew import Crew
from learner.messages import StepReport
from learner.rank import LearnerRank
from protocol.journal import AppendOutcome
from protocol.stream import Received
from protocol.weights import Lineage, Version


class MortalBuffer(Buffer):
    async def _append(self, items: Sequence[Received]) -> Sequence[AppendOutcome]:
        outcomes = await super()._append(items)
        reached(Point.APPEND_ACK)
        return outcomes

    async def commit(self, step: int) -> None:
        reached(Point.MANIFEST_COMMIT)
        await super().commit(step)

    async def compact(self, oldest_kept_step: int) -> None:
        reached(Point.COMMIT_COMPACT)
        await super().compact(oldest_kept_step)


class MortalLearnerRank(LearnerRank):
    def step(self, step: int, payload: list[bytes], lineage: Lineage, using: Version) -> StepReport:
        reached(Point.LEASE_STEP)
        return super().step(step, payload, lineage, using)

    def save(self, folder: str) -> None:
        reached(Point.STEP_SHARD)
        super().save(folder)
        reached(Point.SHARDS_MANIFEST)


CREW = Crew(buffer=MortalBuffer, engine=FakeEngine, learner=MortalLearnerRank)
CLASSES = {
    Process.WORKER: CREW.worker.__name__,
    Process.BUFFER: CREW.buffer.__name__,
    Process.CONDUCTOR: CREW.conductor.__name__,
    Process.LEARNER: CREW.learner.__name__,
}
"""What Ray calls their processes."""
