"""Actor classes of a run whose learner publishes other weights than it trains."""

from __future__ import annotations

from launch.actor_group.actor_classes import ActorClasses
from learner.models.hf_folder import NamedWeight
from learner.rank import LearnerRank


class DriftedLearnerRank(LearnerRank):
    def begin_publish(self) -> None:
        super().begin_publish()
        self._publishing = [NamedWeight(name, tensor * 1.1) for name, tensor in self._publishing]


ACTOR_CLASSES = ActorClasses(learner=DriftedLearnerRank)
