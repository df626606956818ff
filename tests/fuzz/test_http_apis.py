"""If these fail, a request to the gateway, the evaluation relay, the environment service or the monitor ends in a
status 500, or gets a reply of another form than is documented.

The pool server and the router are in ``tests/unit/sandbox/server/test_server_fuzz.py``.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import schemathesis
from aiohttp import web
from schemathesis import GenerationMode

from actors.engines.messages import GenerateReply, GenerateRequest, OnPartialReply
from actors.environment.episode import EpisodeInputs
from actors.environment.messages import EpisodeOutcome
from actors.gateway.server import Gateway
from launch.bench.monitor.synthetic_run import write_synthetic_run
from launch.evaluation.solvers import api_relay
from launch.evaluation.solvers.api_relay import ApiRelay, RelaySettings
from launch.monitor.web.app import create_monitor_app
from sandbox.session.sandbox_session import SandboxSession
from tests.fuzz.api_documents import Json, gateway_document, monitor_document, relay_document
from tests.support.actors.environments import OUTCOME, serve_environment
from tests.support.actors.gateways import SAMPLING, FakeLimits
from tests.support.fakes.fake_policy import FakeTokenizer, ids_of, make_reply
from tests.support.network.aiohttp_servers import serve_on_loopback
from tests.support.network.api_fuzzing import check_operations, serve_in_thread
from tests.support.network.http_servers import serving

pytestmark = pytest.mark.slow
MODES = pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
EXAMPLES = 15
REPLY = 'I look.<tool_call>{"name": "shell", "arguments": {"command": "ls", "n": 99999999999999999999}}</tool_call>'
MANY = 1 << 40
POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
OPERATIONS = {
    ("gateway", POSITIVE): 6,
    ("gateway", NEGATIVE): 5,
    ("environment", POSITIVE): 5,
    ("environment", NEGATIVE): 3,
    ("relay", POSITIVE): 4,
    ("relay", NEGATIVE): 3,
}
"""Operations that have requests of a kind: one without a body whose parameters are any text has no invalid ones."""


def load(document: Json, url: str) -> schemathesis.BaseSchema:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url)
    return schema


def with_key(key: str, case: schemathesis.Case) -> None:
    case.headers["Authorization"] = f"Bearer {key}"


async def generate(request: GenerateRequest, watch: OnPartialReply | None) -> GenerateReply:
    del watch
    return make_reply(ids_of(REPLY)[: request.max_new_tokens], 1)


@asynccontextmanager
async def gateway_server() -> AsyncGenerator[tuple[str, str]]:
    limits = FakeLimits(max_turns=MANY, total_tokens=MANY, context_tokens=100_000)
    async with Gateway(FakeTokenizer(), generate, model="policy") as gateway:
        with gateway.open_session(limits, SAMPLING) as session:
            yield gateway.url, gateway.api_key(session)


@MODES
def test_no_generated_request_breaks_the_gateway(mode: GenerationMode):
    with serve_in_thread(gateway_server()) as (url, key):
        assert (
            check_operations(load(gateway_document(), url), mode, EXAMPLES, partial(with_key, key))
            == OPERATIONS["gateway", mode]
        )


async def play(part: EpisodeInputs) -> EpisodeOutcome:
    del part
    return OUTCOME


@MODES
def test_no_generated_request_breaks_the_environment_service(mode: GenerationMode):
    with serve_in_thread(serve_environment(play)) as (url, _):
        document = schemathesis.openapi.from_url(f"{url}/openapi.json")
        assert check_operations(document, mode, EXAMPLES) == OPERATIONS["environment", mode]


class NoSandbox:
    engine, container = None, "c1"


async def echo(request: web.Request) -> web.Response:
    """Answer as an endpoint whose reply is whatever was asked."""
    return web.Response(body=await request.read(), content_type="application/json")


@asynccontextmanager
async def relay_server(listener: socket.socket) -> AsyncGenerator[tuple[str, str]]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", echo)
    async with serve_on_loopback(app) as port:
        settings = RelaySettings(
            url=f"http://127.0.0.1:{port}/v1", model="tiny", key="k", temperature=0.5, max_replies=MANY, deadline_s=60.0
        )
        async with ApiRelay(settings) as relay:
            with relay.open_session("s", 1, lambda *_: None) as session:
                async with relay.listen_in_sandbox(cast("SandboxSession", NoSandbox()), 1, session) as key:
                    yield f"http://127.0.0.1:{listener.getsockname()[1]}", key


@MODES
def test_no_generated_request_breaks_the_evaluation_relay(mode: GenerationMode, monkeypatch: pytest.MonkeyPatch):
    listener = socket.create_server(("127.0.0.1", 0))

    async def listen(*_: object) -> socket.socket:
        return listener

    monkeypatch.setattr(api_relay, "listen_in_container", listen)
    with serve_in_thread(relay_server(listener)) as (url, key):
        assert (
            check_operations(load(relay_document(), url), mode, EXAMPLES, partial(with_key, key))
            == OPERATIONS["relay", mode]
        )


@pytest.fixture(scope="module")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    runs: Path = tmp_path_factory.mktemp("runs")
    write_synthetic_run(runs / "history", 64)
    with serve_in_thread(serving(create_monitor_app(runs / "history"))) as url:
        yield url


def test_no_generated_request_breaks_the_monitor(monitor: str):
    """No request of it is invalid by its document, whose parameters are a number or any text."""
    document = monitor_document(["history"], ["train-g000001-s00"])
    assert check_operations(load(document, monitor), POSITIVE, EXAMPLES) == 18
