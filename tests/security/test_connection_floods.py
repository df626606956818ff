"""Clients that open connections and send nothing, half a request or a body that does not end, or read no answer.

If this fails, one client of a pool server, a router, an environment service, a monitor or a gateway shuts all others
out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable

import pytest
from aiohttp import web

from protocol.processes.open_files import raise_open_file_limit
from sandbox.http.aiohttp_connections import LimitedSite, application_runner
from sandbox.http.aiohttp_connections import serving as served
from sandbox.http.application import create_application
from sandbox.http.auth import Access
from sandbox.http.connections import ConnectionLimits, OpenConnections
from sandbox.http.endpoints import HttpCall, HttpEndpoint
from sandbox.http.messages import ApiMessage, HttpReply, OkReply, WriteFilesRequest
from sandbox.http.serving import bind_listener
from tests.support.network.http_servers import serving

SOON_S = 30.0
HALF_HEAD = b"POST /write HTTP/1.1\r\nHost: localhost\r\nX-Half:"
HALF_BODY = b"POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
ASK_LARGE = WHOLE.replace(b"/healthz", b"/metrics")
LARGE = b"x" * (16 << 20)
"""An answer that no socket holds."""


class Server:
    """A server whose requests to ``/wait`` wait until ``go`` is set."""

    def __init__(self) -> None:
        self.go, self.port, self.waiting = asyncio.Event(), 0, asyncio.Semaphore(0)

    async def wait(self) -> None:
        self.waiting.release()
        await self.go.wait()


@contextlib.asynccontextmanager
async def sandbox_server(connections: OpenConnections) -> AsyncGenerator[Server]:
    """One that is built and run as pool servers, routers and environment services are."""
    server = Server()

    async def write(_: HttpCall[WriteFilesRequest]) -> HttpReply:
        return HttpReply(200, OkReply())

    async def health(_: HttpCall[ApiMessage]) -> HttpReply:
        return HttpReply(200, OkReply())

    async def wait(_: HttpCall[ApiMessage]) -> HttpReply:
        await server.wait()
        return HttpReply(200, OkReply())

    @contextlib.asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        yield

    table = [
        HttpEndpoint("/write", "", WriteFilesRequest, OkReply, write),
        HttpEndpoint("/healthz", "", None, OkReply, health),
        HttpEndpoint("/wait", "", None, OkReply, wait),
    ]
    app = create_application("flooded", table, running, lambda: LARGE, Access("127.0.0.1"))
    async with serving(app, connections) as url:
        server.port = int(url.rpartition(":")[2])
        yield server


@contextlib.asynccontextmanager
async def harness_server(connections: OpenConnections) -> AsyncGenerator[Server]:
    """One that is run as gateways are."""
    server = Server()

    async def handle(request: web.Request) -> web.Response:
        with served(request):
            if request.path == "/wait":
                await server.wait()
            await request.read()
            return web.Response(body=LARGE if request.path == "/metrics" else b"ok")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = application_runner(app)
    await runner.setup()
    try:
        listener = bind_listener("127.0.0.1", 0)
        await LimitedSite(runner, listener, connections).start()
        server.port = listener.getsockname()[1]
        yield server
    finally:
        await runner.cleanup()


ServerRunner = Callable[[OpenConnections], contextlib.AbstractAsyncContextManager[Server]]
SERVERS = pytest.mark.parametrize("run_server", [sandbox_server, harness_server])


@contextlib.asynccontextmanager
async def flood(port: int, count: int, sent: bytes) -> AsyncGenerator[list[asyncio.StreamReader]]:
    """Connections on which ``sent`` was sent, while they are held open."""
    clients: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        for _ in range(count):
            clients.append(await asyncio.open_connection("127.0.0.1", port))
            clients[-1][1].write(sent)
        yield [reader for reader, _ in clients]
    finally:
        for _, writer in clients:
            writer.close()


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(SOON_S):
        if not (line := await reader.readline()):
            raise ConnectionResetError
        return int(line.split()[1])


async def answered(port: int) -> int:
    """The status of a whole request on a new connection; 0 if that is cut."""
    async with flood(port, 1, WHOLE) as [reader]:
        try:
            return await status(reader)
        except ConnectionResetError:
            return 0


@contextlib.asynccontextmanager
async def unread(port: int, count: int, sent: bytes) -> AsyncGenerator[list[socket.socket]]:
    """Connections on which ``sent`` was sent and nothing is read."""
    with contextlib.ExitStack() as closing:
        clients = [closing.enter_context(socket.socket()) for _ in range(count)]
        for each in clients:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.setblocking(False)
            await asyncio.get_running_loop().sock_connect(each, ("127.0.0.1", port))
            await asyncio.get_running_loop().sock_sendall(each, sent)
        yield clients


@SERVERS
@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY], ids=["nothing", "half a head", "half a body"])
async def test_others_are_answered_beside_a_flood(run_server: ServerRunner, sent: bytes) -> None:
    connections = OpenConnections(ConnectionLimits(24, 16))
    async with run_server(connections) as server, flood(server.port, 100, sent):
        assert await answered(server.port) == 200
        assert connections.refused == 0
        assert len(connections) <= 16


@SERVERS
async def test_a_request_that_is_served_survives_a_flood(run_server: ServerRunner) -> None:
    connections = OpenConnections(ConnectionLimits(24, 16))
    async with (
        run_server(connections) as server,
        flood(server.port, 1, WHOLE.replace(b"/healthz", b"/wait")) as [waiting],
    ):
        await server.waiting.acquire()
        async with flood(server.port, 100, HALF_HEAD):
            assert await answered(server.port) == 200
            server.go.set()
            assert await status(waiting) == 200
        assert connections.displaced > 80


@SERVERS
async def test_a_connection_that_is_refused_is_told_so(run_server: ServerRunner) -> None:
    connections = OpenConnections(ConnectionLimits(3, 2))
    wait = WHOLE.replace(b"/healthz", b"/wait")
    async with run_server(connections) as server, flood(server.port, 2, wait):
        await server.waiting.acquire()
        await server.waiting.acquire()
        assert await answered(server.port) == 503
        assert connections.refused == 1
        server.go.set()


@SERVERS
@pytest.mark.parametrize("sent", [b"", HALF_HEAD, WHOLE, WHOLE + HALF_HEAD])
async def test_a_connection_without_a_next_request_ends_at_its_deadline(run_server: ServerRunner, sent: bytes) -> None:
    connections = OpenConnections(ConnectionLimits(head_s=0.05))
    async with run_server(connections) as server, flood(server.port, 1, sent) as [reader]:
        async with asyncio.timeout(SOON_S):
            with contextlib.suppress(ConnectionResetError):
                assert sent.startswith(WHOLE) == bool(await reader.read())
        assert len(connections) == 0


@SERVERS
@pytest.mark.parametrize("sent", [ASK_LARGE, ASK_LARGE + WHOLE * 3], ids=["one", "several"])
async def test_who_reads_no_answer_is_cut_and_others_are_answered(run_server: ServerRunner, sent: bytes) -> None:
    connections = OpenConnections(ConnectionLimits(4, 4, head_s=0.1))
    async with run_server(connections) as server, unread(server.port, 4, sent), asyncio.timeout(SOON_S):
        answer = 0
        while answer != 200:  # a machine slower than the deadline cuts good clients too
            await asyncio.sleep(0.01)
            answer = await answered(server.port)


@SERVERS
async def test_an_answer_that_is_not_read_yet_survives_a_flood(run_server: ServerRunner) -> None:
    connections = OpenConnections(ConnectionLimits(24, 16))
    async with run_server(connections) as server, unread(server.port, 1, ASK_LARGE) as [reader]:
        first = await asyncio.get_running_loop().sock_recv(reader, 12)
        assert first == b"HTTP/1.1 200"
        async with flood(server.port, 100, HALF_BODY):
            assert await answered(server.port) == 200
            got, more = 0, 1
            async with asyncio.timeout(SOON_S):
                while got < len(LARGE) and more:
                    more = len(await asyncio.get_running_loop().sock_recv(reader, 1 << 20))
                    got += more
            assert got >= len(LARGE), "it was cut"


@SERVERS
async def test_an_answer_that_has_nothing_to_send_is_not_cut(run_server: ServerRunner) -> None:
    connections = OpenConnections(ConnectionLimits(head_s=0.05))
    wait = WHOLE.replace(b"/healthz", b"/wait")
    async with run_server(connections) as server, flood(server.port, 1, wait) as [waiting]:
        await server.waiting.acquire()
        async with flood(server.port, 1, b"") as [silent], asyncio.timeout(SOON_S):
            assert await silent.read() == b"", "a later deadline has passed"
        server.go.set()
        assert await status(waiting) == 200


@pytest.mark.slow
@SERVERS
async def test_2600_half_requests_lock_nobody_out(run_server: ServerRunner) -> None:
    raise_open_file_limit()
    connections = OpenConnections()
    async with run_server(connections) as server, flood(server.port, 2600, HALF_HEAD):
        assert [await answered(server.port) for _ in range(20)] == [200] * 20
        assert len(connections) <= connections.limits.client
