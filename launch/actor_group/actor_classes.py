"""The classes of a run's actors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.engines.engine import SGLangEngine
from actors.engines.interface import Engine
from actors.engines.settings import EngineSpec
from actors.engines.weights.broadcast_loader import BroadcastSender
from actors.workers.episode_runner import EpisodeRunner
from learner.rank import LearnerRank

EngineClass = Callable[[EngineSpec, BroadcastSender | None], Engine]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorClasses:
    """Classes of a run's actors; each actor's process imports its own by name."""

    buffer: type[TrajectoryBuffer] = TrajectoryBuffer
    engine: EngineClass = SGLangEngine
    episode_runner: type[EpisodeRunner] = EpisodeRunner
    """Runs one episode in a worker."""
    learner: type[LearnerRank] = LearnerRank
