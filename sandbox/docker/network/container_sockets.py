"""Access to a container without a network: a socket of this process listens on the container's own loopback.

The socket exists only in the container's namespace, so nothing else becomes reachable through it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from protocol.errors import UserError
from sandbox.docker.address import DockerAddress
from sandbox.docker.engine import DockerEngine
from sandbox.docker.network.network_namespace import listen_in_namespace
from sandbox.docker.retry import DockerEngineError, Json


class ContainerProcess(NamedTuple):
    """A container's first process, by its PID on this host."""

    pid: int
    confirm: Callable[[], Awaitable[None]]
    """Raises DockerEngineError when the PID no longer belongs to the container."""


def container_process(engine: DockerEngine, container: str, facts: Json) -> ContainerProcess:
    """Find the first process of a running container in the daemon's description ``facts`` of it.

    Raises UserError where the engine may be on another machine, whose PIDs mean nothing here.
    """
    if not DockerAddress.parse(engine.url).socket:
        raise UserError(
            "listening in a sandbox (network `proxy`, agent.harness) needs its network namespace on this machine, and "
            f"the Docker engine at {engine.url} may be on another: set DOCKER_HOST to the unix:// socket of an engine "
            "here, or use network `none` or `full` and no harness"
        )
    pid = int(facts["State"]["Pid"])

    async def confirm() -> None:
        if (await engine.inspect(container))["State"]["Pid"] != pid:
            raise DockerEngineError(f"container {container[:12]} ended while a socket was being opened in it")

    return ContainerProcess(pid, confirm)


def can_listen_in_containers(engine: DockerEngine) -> bool:
    """Return whether this process may enter the containers' namespaces: it is root on the engine's machine."""
    return os.geteuid() == 0 and bool(DockerAddress.parse(engine.url).socket)


async def listen_in_container(engine: DockerEngine, container: str, port: int) -> socket.socket:
    """Listen at 127.0.0.1:``port`` of a running container.

    Raises UserError where that is impossible, NamespacePortTakenError where a program in the container listens there,
    DockerEngineError.
    """
    pid, confirm = container_process(engine, container, await engine.inspect(container))
    return await listen_in_namespace(pid, confirm, port)
