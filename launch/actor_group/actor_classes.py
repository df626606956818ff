"""The classes that a run's actors are started from: the real ones, unless a bench (:mod:`launch.bench`) substitutes its
own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.engines.engine import SGLangEngine
from actors.engines.interface import Engine
from actors.engines.settings import EngineSpec
from actors.engines.weights.broadcast_loader import BroadcastSender
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.workers.rollout_worker import RolloutWorker
from learner.rank import LearnerRank


@dataclass(frozen=True, slots=True)
class ActorClasses:
    """Each actor's process imports its class by name."""

    buffer: type[TrajectoryBuffer] = TrajectoryBuffer
    scheduler: type[RolloutScheduler] = RolloutScheduler
    engine: Callable[[EngineSpec, BroadcastSender | None], Engine] = SGLangEngine
    worker: type[RolloutWorker] = RolloutWorker
    learner: type[LearnerRank] = LearnerRank


DEFAULT_ACTOR_CLASSES = ActorClasses()
