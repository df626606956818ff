"""A learner that publishes other weights than it trains."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

from learner.models.hf_folder import NamedWeight
from learner.rank import LearnerRank


class DriftedLearnerRank(LearnerRank):
    def begin_publish(self) -> None:
        publisher = self.ready.publisher
        export = publisher.export

        def drifted() -> Iterator[NamedWeight]:
            return (NamedWeight(name, tensor * 1.1) for name, tensor in export())

        with patch.object(publisher, "export", drifted):
            super().begin_publish()
