"""All that a run has on machines other than the driver's, so that its actors work there as they do here.

For each such machine: an outpost, whose courier brings what is written there; and copies of weights, of which the run's
model is the first.  The source of weights is on the driver's.  A machine that joins later is settled in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from actors.remote import Remote
from actors.weights.copies import HostCopies
from actors.weights.source import RemoteSource, WeightSource
from launch.config import RunConfig
from launch.guardian import machine_token
from launch.machines.mirror import Mirror
from launch.machines.outpost import Courier, Outpost, OutpostSettings
from launch.nodes import Node, Role
from launch.rundir import RunDirectory
from launch.settings import actors_folder, copies_settings, machine_homes, ticket_deadline_s
from protocol.errors import InfraError, LongshoreError
from protocol.events import EventLog
from protocol.structured import task_group

P = ParamSpec("P")
T = TypeVar("T")

_END_S = 15.0


class On(Protocol):
    """Starts an actor on a node, by its name in the run."""

    def __call__(
        self, node: Node, name: str, cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Remote[T]: ...


@dataclass(frozen=True, slots=True)
class Machine:
    home: Node
    """On which what the machine has once is."""
    courier: Courier
    copies: Remote[HostCopies]
    model: Path
    """The run's model folder there."""


class Abroad:
    def __init__(
        self, config: RunConfig, directory: RunDirectory, events: EventLog, *, model: Path, on: On, token: str
    ) -> None:
        """``model``: the run's folder here.  ``token``: of its processes on this machine."""
        self._config, self._directory, self._model, self._events = config, directory, model, events
        self._on, self._token = on, token
        self._source: Remote[WeightSource] | None = None
        self.machines: dict[str, Machine] = {}
        """By address."""
        self.copies: dict[str, Remote[HostCopies]] = {}
        """Node → the copies that its machine's engines read."""
        self._hosts: set[str] = set()
        """Those of these nodes that every version is broadcast to, where that is its way."""

    async def settle(self, nodes: Sequence[Node], copy_homes: Mapping[str, Node]) -> None:
        """Bring to the machines of ``nodes`` what they lack.  ``copy_homes``: of each engine that reads copies, the
        node that keeps them.  The first node is the driver's.  Raises InfraError."""
        homes = {home.name: home for home in copy_homes.values()}
        fresh = [home for at, home in machine_homes(nodes).items() if home.remote and at not in self.machines]
        if not homes and not fresh:
            return
        if self._source is None:
            self._hosts = set(homes)
            self._source = self._on(nodes[0], "weights", WeightSource, len(homes), nodes[0].address)
        for home in (*homes.values(), *fresh):
            if home.name not in self.copies:
                told = copies_settings(self._config, self._directory, home)
                self.copies[home.name] = self._on(home, told.name, HostCopies, told, RemoteSource(self._source))
        worked_on = {node.address for node in nodes if Role.WORKER in node.roles}
        async with task_group() as group:
            for home in fresh:
                group.create_task(self._open(home, sweeps=self._config.sandbox.own and home.address in worked_on))

    async def _open(self, home: Node, *, sweeps: bool) -> None:
        config, copies = self._config, self.copies[home.name]
        post = self._on(
            home,
            f"outpost-{home.name.removeprefix('node-')}",
            Outpost,
            OutpostSettings(
                folder=actors_folder(config, self._directory, home),
                run_id=self._directory.run_id,
                token=machine_token(self._token, home.address),
                sweeps=sweeps,
                settled_s=ticket_deadline_s(config),
            ),
        )
        model = await copies.call(HostCopies.model, str(self._model))
        courier = Courier(post, Mirror(self._directory.path), self._events)
        self.machines[home.address] = Machine(home, courier, copies, Path(model))
        self._events.emit("machine.settled", name=home.name, address=home.address)

    def model(self, node: Node) -> Path:
        """The run's model folder, as ``node`` has it.  Raises InfraError."""
        return self.machine(node).model if node.remote else self._model

    def machine(self, node: Node) -> Machine:
        """Of a remote ``node``.  Raises InfraError where the node of it that had what it has once is gone."""
        if (machine := self.machines.get(node.address)) is None:
            raise InfraError(
                f"what the run had on the machine of {node.name} ({node.address}) is gone with another node"
            )
        return machine

    async def spread_without(self, node: Node) -> None:
        """It is gone: no broadcast of weights waits for it any more."""
        if self._source is not None and node.name in self._hosts:
            self._hosts.remove(node.name)
            await self._source.call(WeightSource.expect, len(self._hosts))

    def forget(self, node: Node) -> None:
        """It is gone: what was on it is asked no more."""
        self.copies.pop(node.name, None)
        machine = self.machines.get(node.address)
        if machine is not None and machine.home.ray_id == node.ray_id:
            del self.machines[node.address]

    @property
    def actors(self) -> tuple[Remote[Any], ...]:
        source = (self._source,) if self._source is not None else ()
        return (*source, *self.copies.values(), *(each.courier.post for each in self.machines.values()))

    async def close(self, sweep_s: float | None) -> None:
        """Once no other actor writes: bring the rest and leave nothing there.  ``sweep_s``: workers have died, and
        Docker engines may be busy for so long with what they had asked for."""
        async with asyncio.TaskGroup() as group:
            for machine in self.machines.values():
                group.create_task(self._close(machine, sweep_s))

    async def _close(self, machine: Machine, sweep_s: float | None) -> None:
        await machine.courier.finish()
        post, limit_s = machine.courier.post, (sweep_s or 0.0) + _END_S
        try:
            async with asyncio.timeout(limit_s):
                if sweep_s is not None:
                    await post.call(Outpost.sweep, sweep_s)
                await post.call(Outpost.end)
        except (LongshoreError, TimeoutError) as error:
            why = str(error) or f"no answer within {limit_s:g} s"
            self._events.emit("stop.failed", why=f"{post.name}: {why}")
