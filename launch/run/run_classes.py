"""The classes of a run's parts that another command may replace: kill points, delays and fakes are subclasses."""

from __future__ import annotations

from dataclasses import dataclass

from launch.actor_group.actor_classes import ActorClasses
from launch.checkpoints.store import CheckpointStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClasses(ActorClasses):
    """The actors' classes and those of the driver's own parts."""

    checkpoint_store: type[CheckpointStore] = CheckpointStore
