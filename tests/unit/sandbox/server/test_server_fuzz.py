"""If these fail, an invalid request crashes the pool server, or gets a reply that the OpenAPI document does not
describe.

The requests are generated from the server's own OpenAPI document; half of those that name a lease name one that exists.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import schemathesis
from schemathesis import GenerationMode

from sandbox.http.auth import Access
from sandbox.http.task_codec import encode_task
from sandbox.pool.leases import LeaseLimits
from sandbox.router.app import create_app
from sandbox.router.pool_servers import RoutedPoolServers
from sandbox.tasks.task import Task
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.api_fuzzing import check_operations, serve_in_thread
from tests.support.network.http_servers import pool_server, serving

TASK = {"task": encode_task(Task(id="t", instruction=""))}
LIMITS = LeaseLimits(tasks=1 << 20, runs_per_task=1 << 20)


@asynccontextmanager
async def servers(state: Path) -> AsyncGenerator[dict[str, str]]:
    async with pool_server(FakeProvider(), state, LIMITS) as (worker, _):
        router = create_app(lambda: RoutedPoolServers((worker,), "", 60.0), Access("127.0.0.1"))
        async with serving(router) as routed:
            yield {"server": worker, "router": routed}


@pytest.fixture(scope="module", params=["server", pytest.param("router", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with serve_in_thread(servers(tmp_path_factory.mktemp("state"))) as urls:
        yield urls[request.param]


@pytest.fixture(scope="module")
def lease(url: str) -> str:
    with httpx.Client(base_url=url, timeout=60) as http:
        lease_id = http.post("/allocate", json={"task_key": "fuzzed"}).json()["lease_id"]
        assert http.post("/reset", json={"lease_id": lease_id, "task_meta": TASK}).status_code == 200
    return lease_id


@pytest.fixture(scope="module")
def document(url: str) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_no_generated_request_breaks_the_server(document: schemathesis.BaseSchema, lease: str, mode: GenerationMode):
    def with_lease(case: schemathesis.Case) -> None:
        body = case.body
        if isinstance(body, dict) and "lease_id" in body and case.path != "/close" and len(str(body)) % 2:
            case.body = body | {"lease_id": lease}

    assert check_operations(document, mode, 10, with_lease) == (17 if mode is GenerationMode.POSITIVE else 15)
