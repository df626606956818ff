"""If these fail, an invalid request crashes the pool server, or gets a reply that the OpenAPI document does not
describe.

The requests are generated from the server's own OpenAPI document; half of those that name a lease name one that exists.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from sandbox.http.auth import Access
from sandbox.http.task_codec import encode_task
from sandbox.pool.leases import LeaseLimits
from sandbox.router.app import create_app
from sandbox.router.pool_servers import RoutedPoolServers
from sandbox.tasks.task import Task
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.http_servers import pool_server, serving

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
TASK = {"task": encode_task(Task(id="t", instruction=""))}
LIMITS = LeaseLimits(tasks=1 << 20, runs_per_task=1 << 20)


@pytest.fixture(scope="module", params=["server", pytest.param("router", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Serve in a separate thread: the generated requests are blocking."""
    ready, stop = threading.Event(), asyncio.Event()
    found: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        async with pool_server(FakeProvider(), tmp_path_factory.mktemp("state"), LIMITS) as (worker, _):
            router = create_app(lambda: RoutedPoolServers((worker,), "", 60.0), Access("127.0.0.1"))
            async with serving(router) as routed:
                found.append(routed if request.param == "router" else worker)
                ready.set()
                await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(60)


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
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) == 17
    for operation in operations:
        if operation.method == "get":
            continue

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=10,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: schemathesis.Case) -> None:
            body = case.body
            if isinstance(body, dict) and "lease_id" in body and case.path != "/close" and len(str(body)) % 2:
                case.body = body | {"lease_id": lease}
            case.call_and_validate(checks=CHECKS)

        check()
