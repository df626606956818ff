"""If these fail, a process without free file descriptors takes every sandbox of its pool down."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from protocol.processes import open_files
from sandbox.docker.retry import DockerEngineError
from sandbox.egress_proxy import proxy
from sandbox.egress_proxy.proxy import EgressProxy
from sandbox.egress_proxy.settings import EgressProxySettings
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool

NO_ROOM = OSError(errno.EMFILE, "Too many open files")


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Generator[socket.socket]:
    """Open the proxy's listener in this process's own namespace."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)

    async def listening_in(*_: object) -> socket.socket:
        return listener

    monkeypatch.setattr(proxy, "listen_in_namespace", listening_in)
    monkeypatch.setattr(proxy, "PAUSE_S", 0.0)
    yield listener
    listener.close()


@pytest.fixture
async def opened(door: socket.socket, tmp_path: Path) -> AsyncGenerator[EgressProxy]:
    async with EgressProxy(tmp_path / "egress_proxy", EgressProxySettings()) as made, made.opened(1, ()):
        yield made


async def read_all(door: socket.socket) -> bytes:
    """Return the proxy's reply to an invalid request; empty if the connection just ends."""
    reader, writer = await asyncio.open_connection(*door.getsockname())
    writer.write(b"GET /etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_proxy_continues_after_running_out_of_file_descriptors(
    opened: EgressProxy, door: socket.socket, monkeypatch: pytest.MonkeyPatch
):
    loop = asyncio.get_running_loop()
    accept, refusals = loop.sock_accept, iter([NO_ROOM] * 100)

    async def sock_accept(at: socket.socket) -> tuple[socket.socket, object]:
        if error := next(refusals, None):
            raise error
        return await accept(at)

    monkeypatch.setattr(loop, "sock_accept", sock_accept)
    assert b"names no server" in await read_all(door)  # the accept that waits since the proxy opened
    for _ in range(2):
        assert b"names no server" in await read_all(door)
    assert next(refusals, None) is None, "nothing was refused"


async def test_only_the_connection_that_cannot_be_served_is_closed(
    opened: EgressProxy, door: socket.socket, monkeypatch: pytest.MonkeyPatch
):
    connect = asyncio.open_connection
    failures = iter([NO_ROOM])

    async def open_connection(*where: object, sock: socket.socket | None = None) -> object:
        if sock is not None and (error := next(failures, None)):
            raise error
        return await connect(*where, sock=sock)

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    assert await read_all(door) == b""
    assert b"names no server" in await read_all(door)
    assert opened.statistics().refused[f"failed: OSError {NO_ROOM}"] == 1


@pytest.fixture
def few_files() -> Generator[int]:
    """Set a soft limit below the hard one, and yield the hard one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_open_file_limit_is_raised_to_the_systems_maximum(few_files: int):
    for _ in range(2):
        open_files.raise_open_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (few_files, few_files)


async def test_an_opening_pool_raises_the_open_file_limit(few_files: int, tmp_path: Path):
    host = SandboxHost(f"unix://{tmp_path}/nobody.sock", "base", tmp_path / "toolchain")
    with pytest.raises(DockerEngineError):
        async with SandboxPool(PoolSettings("p", "r", 1), host):
            pass
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == few_files
