"""If these fail, the proxy listens in a process of this machine that is not a sandbox, or in another sandbox."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import pytest

from protocol.errors import UserError
from sandbox.docker.retry import DockerEngineError
from sandbox.networking.networks import SHARED_NETWORK, BuildNetworkContainer, NetworkTamperedError, SandboxNetworks
from sandbox.tasks.task_network import NetworkMode

PID = 4711


class NetworkEngine:
    """Returns the next process of a container at each inspection."""

    def __init__(self, url: str, *pids: int) -> None:
        self.url, self._pids = url, iter(pids)

    async def inspect(self, _: str) -> Mapping[str, object]:
        networks = {"NetworkSettings": {"Networks": {}}, "HostConfig": {"NetworkMode": "none"}}
        return {**networks, "State": {"Pid": next(self._pids)}}


class FakeBridge(NetworkEngine):
    """A container for the shared bridge that is not connected to it, with these files mounted into it."""

    def __init__(self, resolver: Path) -> None:
        super().__init__("unix:///run/docker.sock", PID)
        self._resolver = resolver

    async def inspect(self, container: str) -> Mapping[str, object]:
        shown = await super().inspect(container)
        return {**shown, "HostConfig": {"NetworkMode": SHARED_NETWORK}, "ResolvConfPath": str(self._resolver)}


class FakeEgressProxy:
    """A proxy that listens nowhere but records where it would."""

    def __init__(self) -> None:
        self.listened_in: list[int] = []

    async def get(self) -> Self:
        return self

    @asynccontextmanager
    async def opened(
        self, pid: int, hosts: tuple[str, ...], *, confirm: Callable[[], Awaitable[None]], **_: object
    ) -> AsyncGenerator[Mapping[str, str]]:
        await confirm()
        self.listened_in.append(pid)
        yield {}


async def listened_in(url: str, *pids: int) -> list[int]:
    """Return where the proxy listens for a container of an engine."""
    proxy = FakeEgressProxy()
    networks = SandboxNetworks(
        NetworkEngine(url, *pids), proxy, BuildNetworkContainer("base", Path()), has_bridge=False
    )
    async with networks.phase("c", NetworkMode.PROXY):
        return proxy.listened_in


async def test_the_proxy_opens_in_a_container_that_still_has_the_same_process():
    assert await listened_in("unix:///run/docker.sock", PID, PID) == [PID]


@pytest.mark.parametrize("later", [0, PID + 1])
async def test_a_container_that_ended_while_its_proxy_opened_is_an_error(later: int):
    with pytest.raises(DockerEngineError, match="ended while a socket was being opened"):
        await listened_in("unix:///run/docker.sock", PID, later)


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:2375", "tcp://box:2376?certs=/c"])
async def test_process_numbers_of_a_possibly_remote_engine_are_not_looked_up_locally(url: str):
    with pytest.raises(UserError, match=r"may be on another: set DOCKER_HOST to the unix:// socket"):
        await listened_in(url, PID)


async def test_an_oversized_resolv_conf_written_by_an_agent_is_refused(tmp_path: Path):
    resolver = tmp_path / "resolv.conf"
    resolver.write_bytes(b"#" * (2 << 20))
    networks = SandboxNetworks(
        FakeBridge(resolver), FakeEgressProxy(), BuildNetworkContainer("base", Path()), has_bridge=True
    )
    with pytest.raises(NetworkTamperedError, match=r"resolv\.conf is 2048 KiB long"):
        async with networks.phase("c", NetworkMode.FULL):
            pass
