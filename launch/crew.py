"""The classes of a run's actors: the real ones, unless :mod:`launch.bench.chaos` puts its own in their place."""

from __future__ import annotations

from dataclasses import dataclass

from actors.buffer import Buffer
from actors.conductor import Conductor
from actors.engines.engine import Engine
from actors.worker import Worker
from learner.rank import LearnerRank


@dataclass(frozen=True, slots=True)
class Crew:
    """Each is imported by name in its actor's process."""

    buffer: type[Buffer] = Buffer
    conductor: type[Conductor] = Conductor
    engine: type[Engine] = Engine
    worker: type[Worker] = Worker
    learner: type[LearnerRank] = LearnerRank


CREW = Crew()
