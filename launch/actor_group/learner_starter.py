"""Starts a run's learner, and starts it again after a failure, with every change of the learning rate so far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from actors.runtime.remote_errors import RemoteError
from launch.actor_group.actor_spawner import RunActorSpawner
from launch.actor_group.learner_group import LearnerGroup, learner_spec, spawn_learner_group
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.slot_reservation import LEARNER_ROLE
from launch.run_records.run_directory import RunDirectory
from learner.rank import LearnerRank
from protocol.events import EventLog

_START_ATTEMPTS = 2


class LearnerStarter:
    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        head: ClusterNode,
        *,
        model_path: Path,
        spawner: RunActorSpawner,
        learner_class: type[LearnerRank],
        events: EventLog,
    ) -> None:
        self._config, self._directory, self._head, self._model_path = config, directory, head, model_path
        self._spawner, self._learner_class, self._events = spawner, learner_class, events
        self.newest = LearnerGroup((), 0.0)
        """The ranks that were started last."""
        self._lr_changes: tuple[tuple[int, float], ...] = ()
        """(step, learning rate) of each change since the run was started."""
        self._generation = 0

    async def start(self) -> LearnerGroup:
        """Start a new generation of ranks on the head and end the one before.  Ranks that die or hang while they start
        are replaced once."""
        for attempts_left in reversed(range(_START_ATTEMPTS)):
            self.newest = self._spawn()
            try:
                await self.newest.call(LearnerRank.setup)
            except RemoteError as error:
                if not attempts_left:
                    raise
                self._events.emit("process.died", what=error.actor, why=error.why)
            else:
                return self.newest
        raise AssertionError("unreachable")

    async def set_learning_rate_from(self, step: int, lr: float) -> None:
        """Set the learning rate from optimizer step ``step`` on, also for a learner that is started again."""
        self._lr_changes = (*self._lr_changes, (step, lr))
        await self.newest.call(LearnerRank.set_learning_rate, step, lr)

    def _spawn(self) -> LearnerGroup:
        for rank in self.newest.ranks:
            self._spawner.kill(rank)
        self._generation += 1
        return spawn_learner_group(
            replace(learner_spec(self._config, self._model_path), lr_changes=self._lr_changes),
            self._directory,
            self._head,
            generation=self._generation,
            placement=self._spawner.bundles.get(LEARNER_ROLE),
            cls=self._learner_class,
        )
