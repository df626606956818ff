"""The classes of a run's actors and of its checkpoints: the real ones, unless a bench (:mod:`launch.bench`) puts its
own in their place."""

from __future__ import annotations

from dataclasses import dataclass

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.engines.engine import Engine
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.workers.rollout_worker import RolloutWorker
from launch.checkpoints.store import CheckpointStore
from learner.rank import LearnerRank


@dataclass(frozen=True, slots=True)
class ActorClasses:
    """The actors are imported by name in their own processes; the checkpoints are the driver's."""

    buffer: type[TrajectoryBuffer] = TrajectoryBuffer
    scheduler: type[RolloutScheduler] = RolloutScheduler
    engine: type[Engine] = Engine
    worker: type[RolloutWorker] = RolloutWorker
    learner: type[LearnerRank] = LearnerRank
    checkpoints: type[CheckpointStore] = CheckpointStore


DEFAULT_ACTOR_CLASSES = ActorClasses()
