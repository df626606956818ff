"""Starts a run's actors on their nodes, and records the node of each.

Ray restarts every actor when its process dies and repeats the calls to it, unless the caller forbids it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from actors.runtime.placement_groups import PlacementBundle
from actors.runtime.remote import ActorOptions, Remote, kill_actor, spawn_actor
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import actor_run_dir
from launch.processes.process_reaper import RUN_TOKEN_VARIABLE, host_token
from launch.run_records.run_directory import RunDirectory

P = ParamSpec("P")
T = TypeVar("T")


class RunActorSpawner:
    def __init__(self, config: RunConfig, directory: RunDirectory, token: str) -> None:
        """``token`` marks the run's processes."""
        self._config, self._directory, self._token = config, directory, token
        self.bundles: Mapping[str, PlacementBundle] = {}
        """Slot → the bundle that is reserved for it; a slot is named after its actor or its role."""
        self._node_by_actor: dict[str, ClusterNode] = {}
        self._lost: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def spawn(
        self, node: ClusterNode, name: str, cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Remote[T]:
        """Start an actor on ``node``."""
        return self.spawn_with(self.options(node, name), cls, *args, **kwargs)

    def spawn_with(self, options: ActorOptions, cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Remote[T]:
        """Start an actor with options that :meth:`options` made."""
        return spawn_actor(cls, options, *args, **kwargs)

    def options(self, node: ClusterNode, name: str, *, slot: str = "") -> ActorOptions:
        """Return the options of an actor; ``slot`` names its reserved bundle if that differs from its name."""
        self._node_by_actor[self.full_name(name)] = node
        return ActorOptions(
            name=self.full_name(name),
            node_id=node.ray_id,
            bundle=self.bundles.get(slot or name),
            max_restarts=-1,
            max_task_retries=-1,
            log=self._directory.process_log(name, node.name, actor_run_dir(self._config, self._directory, node)),
            env={RUN_TOKEN_VARIABLE: host_token(self._token, node.address)} if node.remote else {},
        )

    def kill(self, actor: Remote[Any]) -> None:
        """End an actor for good."""
        kill_actor(actor)

    def full_name(self, name: str) -> str:
        """Return the actor's name in the Ray session."""
        return f"{self._directory.run_id}/{self._directory.start_number}/{name}"

    def node_of(self, actor: Remote[Any]) -> ClusterNode:
        return self._node_by_actor[actor.name]

    def is_on(self, node: ClusterNode, actor: Remote[Any]) -> bool:
        return self.node_of(actor).ray_id == node.ray_id

    def logs_of(self, actor: Remote[Any]) -> Path:
        """Return the folder of the actor's logs on its host."""
        return self._directory.logs_in(actor_run_dir(self._config, self._directory, self.node_of(actor)))

    def lost_event(self, node: ClusterNode) -> asyncio.Event:
        """Return the event that is set once ``node`` is lost."""
        return self._lost[node.name]
