"""The run's actors and checkpoint store with kill points, and the fake engine instead of SGLang."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.workers.rollout_worker import RolloutWorker
from launch.bench.chaos.fake_engine import FakeEngine
from launch.bench.chaos.kill_points import KilledProcess, KillPoint, reach_kill_point
from launch.checkpoints.store import Checkpoint, CheckpointManifest, CheckpointStore, LedgerLine
from launch.run.run_classes import RunClasses
from learner.messages import StepReport
from learner.rank import LearnerRank
from protocol.files.digests import FileDigest
from protocol.journal import AppendOutcome
from protocol.stream import ReceivedTrajectory
from protocol.weights import Lineage, WeightVersion


class KillableBuffer(TrajectoryBuffer):
    async def append(self, items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
        outcomes = await super().append(items)
        reach_kill_point(KillPoint.APPEND_ACK, KilledProcess.BUFFER)
        return outcomes

    async def commit_step(self, step: int) -> None:
        reach_kill_point(KillPoint.MANIFEST_COMMIT, KilledProcess.BUFFER)
        await super().commit_step(step)

    async def compact_before(self, oldest_kept_step: int) -> None:
        reach_kill_point(KillPoint.COMMIT_COMPACT, KilledProcess.BUFFER)
        await super().compact_before(oldest_kept_step)


class KillableLearnerRank(LearnerRank):
    def step(self, step: int, payload: list[bytes], lineage: Lineage, using: WeightVersion) -> StepReport:
        reach_kill_point(KillPoint.LEASE_STEP, KilledProcess.LEARNER)
        return super().step(step, payload, lineage, using)

    def begin_save(self, folder: str) -> None:
        reach_kill_point(KillPoint.STEP_SHARD, KilledProcess.LEARNER)
        super().begin_save(folder)

    def end_save(self) -> dict[str, FileDigest]:
        written = super().end_save()
        reach_kill_point(KillPoint.SHARDS_MANIFEST, KilledProcess.LEARNER)
        return written


class KillableCheckpointStore(CheckpointStore):
    """The driver's checkpoint store, with its kill points."""

    def finish(self, manifest: CheckpointManifest, ledger: Iterable[LedgerLine]) -> Checkpoint:
        checkpoint = super().finish(manifest, ledger)
        reach_kill_point(KillPoint.MANIFEST_COMMIT, KilledProcess.DRIVER)
        return checkpoint

    def prune(self) -> int:
        reach_kill_point(KillPoint.COMMIT_COMPACT, KilledProcess.DRIVER)
        return super().prune()


KILLABLE_CLASSES = RunClasses(
    buffer=KillableBuffer,
    engine=FakeEngine,
    learner=KillableLearnerRank,
    checkpoint_store=KillableCheckpointStore,
)

RAY_CLASS_NAMES = {
    KilledProcess.WORKER: RolloutWorker.__name__,
    KilledProcess.BUFFER: KillableBuffer.__name__,
    KilledProcess.SCHEDULER: RolloutScheduler.__name__,
    KilledProcess.LEARNER: KillableLearnerRank.__name__,
}
"""Names in Ray of the processes that are killed at random."""
