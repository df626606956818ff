"""A harness, or a client of a pool server, begins requests and does not end them, or declares more than is allowed.

If this fails, one of them fills the memory that all share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from starlette.requests import Request

from actors.environment.messages import CancelEpisodeRequest
from actors.gateway.chat_request import GatewayRequestError
from actors.gateway.request_bodies import BodyLimits, RequestBodies
from sandbox.http.body_budget import MAX_BODY_BYTES, SMALL_BYTES, BodyBudget, BodyBudgetLimits
from sandbox.http.endpoints import HttpCall, HttpEndpoint, endpoint_route, receive_body
from sandbox.http.messages import (
    ApiMessage,
    CloseRequest,
    HeartbeatRequest,
    HttpError,
    HttpReply,
    InterruptRequest,
    LeaseRequest,
    OkReply,
)
from tests.support.actors.gateways import open_gateway

SOON_S = 30.0
LIMITS = BodyLimits(body=1000, session=1500, all_sessions=2500)


class Client:
    """A connection on which the test writes HTTP itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def begin(self, path: str, length: int | None, *headers: str) -> None:
        """Send the head of a request."""
        framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        lines = (f"POST {path} HTTP/1.1", "Host: gateway", framing, *headers, "", "")
        self.writer.write("\r\n".join(lines).encode())
        await self.writer.drain()

    async def status(self) -> int:
        async with asyncio.timeout(SOON_S):
            return int((await self.reader.readline()).split()[1])


@contextlib.asynccontextmanager
async def connected(host: str, port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def serving(bodies: RequestBodies) -> AsyncIterator[tuple[int, asyncio.Queue[str]]]:
    """A server whose paths are sessions.  Gives its port, and the sessions whose requests began."""
    begun = asyncio.Queue[str]()

    async def handle(request: web.Request) -> web.Response:
        begun.put_nowait(request.path)
        try:
            async with bodies.receive(request, request.path) as body:
                return web.Response(text=str(len(body)))
        except GatewayRequestError as error:
            return web.Response(status=error.status)

    app = web.Application()
    app.router.add_post("/{session}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0, lingering_time=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1], begun
    finally:
        await runner.cleanup()


async def test_unfinished_uploads_of_one_session_are_bounded_and_others_go_on() -> None:
    async with serving(RequestBodies(LIMITS)) as (port, begun), contextlib.AsyncExitStack() as clients:

        async def client() -> Client:
            return await clients.enter_async_context(connected("127.0.0.1", port))

        first, second, other, third = [await client() for _ in range(4)]
        await first.begin("/a", 900)
        assert await begun.get() == "/a"
        await second.begin("/a", 900)
        assert await second.status() == 429
        await other.begin("/b", 1000)
        assert await begun.get() == "/a"
        assert await begun.get() == "/b"
        await third.begin("/c", 900)
        assert await third.status() == 503
        first.writer.write(b"x" * 900)
        assert await first.status() == 200, "and then there is room again"
        again = await client()
        await again.begin("/a", 900)
        again.writer.write(b"x" * 900)
        assert await again.status() == 200


@pytest.mark.parametrize("length", [1001, None], ids=["declared", "as it arrives"])
async def test_a_body_beyond_the_limit_is_refused(length: int | None) -> None:
    async with serving(RequestBodies(LIMITS)) as (port, _), connected("127.0.0.1", port) as client:
        await client.begin("/a", length)
        if length is None:
            client.writer.write(b"3e9\r\n" + b"x" * 1001 + b"\r\n")
        assert await client.status() == 413


async def test_a_body_that_does_not_come_ends_at_its_deadline() -> None:
    async with serving(RequestBodies(LIMITS, deadline_s=0.05)) as (port, _), connected("127.0.0.1", port) as client:
        await client.begin("/a", 10)
        assert await client.status() == 408


async def test_the_gateway_refuses_what_is_too_large_before_it_reads() -> None:
    async with open_gateway("hello") as clients:
        port = int(clients.gateway.url.rpartition(":")[2])
        key = clients.gateway.api_key(clients.session)
        async with connected("127.0.0.1", port) as client:
            await client.begin("/v1/chat/completions", 65 << 20, f"Authorization: Bearer {key}")
            assert await client.status() == 400, "the context is exceeded, as OpenAI's clients know it"


def request_of(length: int | None, *pieces: bytes, more: bool) -> tuple[Request, list[bytes]]:
    """A request to a server of sandboxes, and the pieces of its body that are not read yet."""
    waiting = [*pieces]

    async def receive() -> dict[str, object]:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(0), "more_body": more or bool(waiting)}
        await asyncio.Event().wait()
        raise AssertionError("it waits forever")

    headers = [] if length is None else [(b"content-length", b"%d" % length)]
    scope = {"type": "http", "method": "POST", "headers": headers}
    return Request(scope, receive), waiting


async def test_a_server_of_sandboxes_reads_nothing_of_what_is_too_large() -> None:
    request, waiting = request_of(MAX_BODY_BYTES + 1, b"x", more=True)
    with pytest.raises(HttpError) as refused:
        async with receive_body(request, BodyBudget()):
            pytest.fail("it was received")
    assert (refused.value.status, waiting) == (413, [b"x"])


async def test_a_server_of_sandboxes_waits_only_so_long_for_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.http.endpoints.BODY_DEADLINE_S", 0.05)
    request, _ = request_of(10, b"x", more=True)
    with pytest.raises(HttpError) as refused:
        async with receive_body(request, BodyBudget()):
            pytest.fail("it was received")
    assert refused.value.status == 408


async def test_a_body_that_is_complete_is_read() -> None:
    request, _ = request_of(3, b"x", b"yz", more=False)
    async with receive_body(request, BodyBudget()) as body:
        assert body == b"xyz"


class PiecewiseBody:
    """A request to a server of sandboxes whose body ends when the test says so."""

    def __init__(self, client: str, size: int) -> None:
        self.rest = asyncio.Event()
        scope = {
            "type": "http",
            "method": "POST",
            "client": (client, 1),
            "headers": [(b"content-length", b"%d" % size)],
        }
        self.request = Request(scope, self._receive)
        self.received = asyncio.Event()

    async def _receive(self) -> dict[str, object]:
        self.received.set()
        await self.rest.wait()
        return {"type": "http.request", "body": b"{}", "more_body": False}


async def test_large_bodies_of_a_client_wait_for_one_another_and_small_ones_and_others_do_not() -> None:
    budget = BodyBudget(BodyBudgetLimits(client=200_000, all_clients=300_000))
    done: list[str] = []

    async def receive(name: str, body: PiecewiseBody) -> None:
        async with receive_body(body.request, budget):
            done.append(name)

    large = [PiecewiseBody("a", 90_000) for _ in range(40)]
    async with asyncio.TaskGroup() as group:
        for number, body in enumerate(large):
            group.create_task(receive(f"large {number}", body))
        await large[1].received.wait()
        for other, body in {"small": PiecewiseBody("a", 1000), "b": PiecewiseBody("b", 90_000)}.items():
            body.rest.set()
            await receive(other, body)
        assert budget.held == 180_000
        assert [body.received.is_set() for body in large] == [True] * 2 + [False] * 38
        assert done == ["small", "b"]
        for body in large:
            body.rest.set()
    assert len(done) == 42
    assert budget.held == 0


@pytest.mark.parametrize("declared", [True, False])
async def test_a_large_body_counts_until_its_handler_has_ended(declared: bool) -> None:
    budget, go, begun = BodyBudget(), asyncio.Event(), asyncio.Event()

    async def handle(_: HttpCall[LeaseRequest]) -> HttpReply:
        begun.set()
        await go.wait()
        return HttpReply(200, OkReply())

    route = endpoint_route(HttpEndpoint("/x", "", LeaseRequest, OkReply, handle), budget)
    body = b'{"lease_id": "x", "more": "%s"}' % (b"x" * 100_000)
    request, _ = request_of(len(body) if declared else None, body, more=False)
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(route.endpoint(request))
        await begun.wait()
        assert budget.held == len(body)
        go.set()
    assert (answering.result().status_code, budget.held) == (200, 0)


@pytest.mark.parametrize("length", [SMALL_BYTES + 1, None])
@pytest.mark.parametrize("message", [HeartbeatRequest, CloseRequest, InterruptRequest, CancelEpisodeRequest])
async def test_a_message_that_is_always_short_has_no_long_body(message: type[ApiMessage], length: int | None) -> None:
    """And waits for no room, also without a declared length."""
    budget = BodyBudget(BodyBudgetLimits(client=100))

    async def refuse(_: HttpCall[ApiMessage]) -> HttpReply:
        raise AssertionError("it was let in")

    route = endpoint_route(HttpEndpoint("/x", "", message, OkReply, refuse), budget)
    request, waiting = request_of(length, b"x" * SMALL_BYTES, b"x", b"x", more=True)
    answer = await route.endpoint(request)
    assert (answer.status_code, len(waiting)) == (413, 3 if length else 1)


async def test_a_body_without_room_in_time_is_to_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.http.endpoints.BODY_DEADLINE_S", 0.05)
    budget = BodyBudget(BodyBudgetLimits(client=100_000))
    async with budget.hold("", 90_000):
        with pytest.raises(HttpError) as refused:
            async with receive_body(request_of(90_000, b"x", more=True)[0], budget):
                pytest.fail("it was received")
    assert (refused.value.status, refused.value.retry_after_s) == (503, 1.0)


async def test_a_large_structure_is_refused_as_it_arrives() -> None:
    request, waiting = request_of(90 << 20, *[b"[]" * 30_000] * 10, more=True)
    with pytest.raises(HttpError) as refused:
        async with receive_body(request, BodyBudget()):
            pytest.fail("it was received")
    assert (refused.value.status, len(waiting)) == (413, 3)
