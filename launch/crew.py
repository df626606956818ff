"""The classes of a run's actors and of its checkpoints: the real ones, unless a bench (:mod:`launch.bench`) puts its
own in their place."""

from __future__ import annotations

from dataclasses import dataclass

from actors.buffer import Buffer
from actors.conductor import Conductor
from actors.engines.engine import Engine
from actors.worker import Worker
from launch.checkpoints import CheckpointStore
from learner.rank import LearnerRank


@dataclass(frozen=True, slots=True)
class Crew:
    """The actors are imported by name in their own processes; the checkpoints are the driver's."""

    buffer: type[Buffer] = Buffer
    conductor: type[Conductor] = Conductor
    engine: type[Engine] = Engine
    worker: type[Worker] = Worker
    learner: type[LearnerRank] = LearnerRank
    checkpoints: type[CheckpointStore] = CheckpointStore


CREW = Crew()
