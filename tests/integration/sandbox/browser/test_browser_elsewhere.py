"""Chromium in sandboxes of other kinds: of another user, on an image without a libc or a shell, behind the proxy.

If these fail, tasks of the web are only played on images and networks like ours, or an agent is not told that a host is
refused.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
import tarfile
import uuid
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandbox.agent_programs import BROWSER_PROGRAMS
from sandbox.browser.browser import SandboxBrowser
from sandbox.docker.engine import DockerEngine
from sandbox.errors import SandboxStartError
from sandbox.host_record import SandboxHost
from sandbox.images import engine_calls
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import ContainerSettings
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from sandbox.tools import BROWSER, ToolContext, call_tool
from tests.support.sandbox.browsers import install_browser_or_skip

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.usefixtures("verifier_half"),
    pytest.mark.asyncio(loop_scope="session"),
]

BUDGET = 2000
OWN, OTHER = "own.example", "other.example"
"""A name that leads to this machine, and one that is not allowed."""
PUBLIC = "93.184.216.34"
"""The address of the first, which the proxy takes for one of the internet."""
PAGE = f"<title>Own</title><h1>Allowed</h1><img src=http://{OTHER}/x.png>".encode()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + PAGE)
    await writer.drain()
    writer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def port() -> AsyncGenerator[int]:
    """Yield the port of a site on this machine."""
    async with await asyncio.start_server(_answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool(docker_engine: SandboxHost, port: int) -> AsyncGenerator[SandboxPool]:
    install_browser_or_skip(docker_engine)
    settings = PoolSettings(
        f"test-browser-elsewhere-{os.getpid()}",
        "test",
        2,
        containers=ContainerSettings(allow_hosts=(f"{OWN}:{port}",)),
        agent_programs=BROWSER_PROGRAMS,
    )
    async with SandboxPool(settings, docker_engine) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bare_image(docker_engine: SandboxHost, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """An image with a file of users and a folder for temporary files, and nothing else."""
    archive: Path = tmp_path_factory.mktemp("image") / "root.tar"
    name = f"longshore/test-bare:{uuid.uuid4().hex}"
    with tarfile.open(archive, "w") as tar:
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(folder)
        users = b"root:x:0:0:root:/:/bin/sh\nagent:x:1000:1000:agent:/tmp:/bin/sh\n"
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(users)
        tar.addfile(passwd, io.BytesIO(users))
    async with DockerEngine(docker_engine.docker_url) as engine:
        await engine_calls.import_archive(engine, archive, name, 60)
        yield name
        await engine_calls.remove_image(engine, name)


@pytest.fixture
def _own_leads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_event_loop()
    resolve, connect = loop.getaddrinfo, loop.sock_connect

    def fake_getaddrinfo(host: str, *given: Any, **options: Any) -> Awaitable[Any]:
        return resolve(PUBLIC if host == OWN else host, *given, **options)

    def fake_sock_connect(sock: socket.socket, address: tuple[str, int]) -> Awaitable[None]:
        return connect(sock, ("127.0.0.1", address[1]) if address[0] == PUBLIC else address)

    monkeypatch.setattr(loop, "getaddrinfo", fake_getaddrinfo)
    monkeypatch.setattr(loop, "sock_connect", fake_sock_connect)


async def go_to(session: SandboxSession, browser: SandboxBrowser, url: str) -> str:
    context = ToolContext(session, 20.0, BUDGET, browser=browser)
    return (await call_tool(context, "goto", {"url": url}, BROWSER)).text


@pytest.mark.usefixtures("_own_leads_here")
@pytest.mark.parametrize(("is_bare", "user"), [(False, "root"), (True, "root"), (True, "agent")])
async def test_a_browser_sees_the_allowed_hosts_and_an_agent_is_told_of_others(
    pool: SandboxPool, port: int, bare_image: str, user: str, *, is_bare: bool
) -> None:
    task = Task("proxied", "Look.", network=TaskNetwork(agent=NetworkMode.PROXY), agent_user=user)
    async with pool.acquire(replace(task, image=bare_image) if is_bare else task) as session:
        browser, shown = await SandboxBrowser.open(session, f"http://{OWN}:{port}/", BUDGET)
        assert 'heading "Allowed" (level 1)' in shown.text
        assert shown.picture is not None
        refused = await go_to(session, browser, f"http://{OTHER}/")
        assert "HTTP status: 403" in refused
        assert f"{OTHER}:80 is not among the hosts that this task allows" in refused
        sealed = await go_to(session, browser, f"https://{OTHER}/")
        assert "did not open: the proxy does not allow this host, or it cannot be reached (net::ERR_TUNNEL" in sealed
        with pytest.raises(SandboxStartError, match=f"page http://{OTHER}/ is refused: .* is not among the hosts"):
            await SandboxBrowser.open(session, f"http://{OTHER}/", BUDGET)
