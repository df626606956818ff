"""If these fail, a server that cannot start prints a traceback of its web server instead of one line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, main_guard
from protocol.errors import InfraError
from sandbox.http.application import create_application
from sandbox.http.auth import Access
from sandbox.http.serving import bind_listener, listener_url, run_server
from sandbox.http.task_codec import encode_task
from sandbox.pool.leases import LeaseLimits
from sandbox.server.app import create_app
from sandbox.server.journal import StateDirectory
from sandbox.server.service import PoolService, PoolServiceSettings
from sandbox.server.task_source import TaskSource
from sandbox.tasks.task import Task
from tests.support.fakes.fake_provider import FakeProvider

Running = Callable[[], AbstractAsyncContextManager[None]]


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Generator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def ended(running: Running) -> int:
    """Return the exit code of a server around this application."""
    app = create_application("ended", [], running, lambda: b"", Access("127.0.0.1"))
    with bind_listener("127.0.0.1", 0) as listener:
        return main_guard(lambda: run_server(app, listener))


def test_a_failed_start_prints_one_line_and_sets_the_exit_code(capfd: pytest.CaptureFixture[str]):
    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        raise InfraError("the daemon is gone")
        yield

    assert ended(running) == EXIT_FAILED
    assert capfd.readouterr() == ("", "error: the daemon is gone\n")


def test_a_stopped_server_exits_its_context_and_fails_if_that_fails(
    capfd: pytest.CaptureFixture[str],
):
    seen: list[str] = []

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        seen.append("entered")
        os.kill(os.getpid(), signal.SIGTERM)
        yield
        seen.append("left")

    assert ended(running) == EXIT_OK
    assert seen == ["entered", "left"]
    assert capfd.readouterr() == ("", ""), "it said that it answers"

    @asynccontextmanager
    async def failing() -> AsyncGenerator[None]:
        async with running():
            yield
        raise InfraError("not all of it is gone")

    assert ended(failing) == EXIT_FAILED
    assert capfd.readouterr().err == "error: not all of it is gone\n"


async def ask_around_a_stop(
    url: str, provider: FakeProvider, others_answered: asyncio.Event
) -> dict[str, httpx.Response]:
    """Return each client's response: those whose commands run at the signal, ``short`` and ``long``, and those who come
    after it. ``others_answered`` is set once all but ``long`` have a response."""
    task = {"task": encode_task(Task(id="t", instruction=""))}
    async with httpx.AsyncClient(base_url=url, timeout=60) as http, asyncio.TaskGroup() as group:

        async def ask(path: str, **body: object) -> httpx.Response:
            return await http.post(path, json=body)

        leases = [(await ask("/allocate", task_key="t")).json()["lease_id"] for _ in range(3)]
        for lease in leases:
            await ask("/reset", lease_id=lease, task_meta=task)
        running = provider.opened[:2]
        for sandbox in running:
            sandbox.may_finish = asyncio.Event()
        short, long = (group.create_task(ask("/run", lease_id=lease, command="x")) for lease in leases[:2])
        while not all(sandbox.calls for sandbox in running):  # noqa: ASYNC110  seen from outside only
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        while not (await http.get("/status")).json()["pool"]["draining"]:  # noqa: ASYNC110  seen from outside only
            await asyncio.sleep(0.01)
        responses = {
            "slot": await ask("/allocate", task_key="t"),
            "new": await ask("/run", lease_id=leases[2], command="x"),
        }
        running[0].may_finish.set()
        responses["short"] = await short
        others_answered.set()
        return {**responses, "long": await long}


def test_clients_waiting_for_a_stopping_pool_server_get_an_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    provider, services, responses, others_answered = FakeProvider(), [], {}, asyncio.Event()
    with StateDirectory(tmp_path) as state, bind_listener("127.0.0.1", 0) as listener:

        @asynccontextmanager
        async def open_service() -> AsyncGenerator[PoolService]:
            settings = PoolServiceSettings(LeaseLimits())
            async with (
                PoolService(settings, provider, TaskSource(None), state) as service,
                asyncio.TaskGroup() as group,
            ):
                services.append(service)
                asking = group.create_task(ask_around_a_stop(listener_url(listener), provider, others_answered))
                yield service
            responses.update(asking.result())

        async def drain(_: float) -> None:
            """Drain until all requests but one have got a reply."""
            async with asyncio.TaskGroup() as group:
                draining = group.create_task(services[0].drain(3600.0))
                await others_answered.wait()
                draining.cancel()
            await services[0].drain(0.0)

        assert run_server(create_app(open_service, Access("127.0.0.1")), listener, drain) == EXIT_OK
    assert {who: (reply.status_code, reply.json().get("code")) for who, reply in responses.items()} == {
        "short": (200, None), "long": (503, "DRAINING"), "slot": (503, "DRAINING"), "new": (503, "DRAINING"),
    }  # fmt: skip
    assert [who for who, reply in responses.items() if "retry-after" in reply.headers] == ["slot", "new"]
    assert [each.calls for each in provider.opened] == [["x"], ["x"], []]
    assert capfd.readouterr().err == ""


def test_a_pool_server_with_a_dead_daemon_gives_advice(tmp_path: Path):
    record = {
        "docker_url": f"unix://{tmp_path}/no.sock",
        "base_image": "b",
        "toolchain": "/toolchain",
        "engine_owner": "",
    }
    (tmp_path / "host.json").write_text(json.dumps(record))
    done = subprocess.run(
        (sys.executable, "-m", "sandbox.server", "--port", "0"),
        env={**os.environ, "LONGSHORE_HOME": str(tmp_path), "DOCKER_HOST": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"error: the Docker engine at {record['docker_url']} does not answer: run")


def test_a_server_answers_once_it_prints_its_address_and_exits_cleanly_on_sigterm():
    with subprocess.Popen(
        (sys.executable, "-m", "sandbox.router", "--port", "0", "--servers", "http://127.0.0.1:9"),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert httpx.get(f"{url}healthz").json() == {"ok": True}
        process.terminate()
        assert process.wait() == EXIT_OK
