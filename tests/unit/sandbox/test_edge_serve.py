"""Who starts a server that cannot start is shown a traceback of its web server in place of a line when this fails."""

from __future__ import annotations

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
from starlette.applications import Starlette

from protocol.cli.exits import EXIT_FAILED, EXIT_OK, main_guard
from protocol.errors import InfraError
from sandbox.edge.serve import bind, serve

Running = Callable[[Starlette], AbstractAsyncContextManager[None]]


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Generator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def ended(running: Running) -> int:
    """The exit code of a server around this."""
    with bind("127.0.0.1", 0) as listener:
        return main_guard(lambda: serve(Starlette(lifespan=running), listener))


def test_what_keeps_a_server_from_starting_is_one_line_and_its_own_exit_code(capfd: pytest.CaptureFixture[str]):
    @asynccontextmanager
    async def running(_: Starlette) -> AsyncGenerator[None]:
        raise InfraError("the daemon is gone")
        yield

    assert ended(running) == EXIT_FAILED
    assert capfd.readouterr() == ("", "error: the daemon is gone\n")


def test_a_server_that_is_stopped_leaves_what_it_entered_and_fails_where_that_fails(
    capfd: pytest.CaptureFixture[str],
):
    seen: list[str] = []

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncGenerator[None]:
        seen.append("entered")
        os.kill(os.getpid(), signal.SIGTERM)
        yield
        seen.append("left")

    assert ended(running) == EXIT_OK
    assert seen == ["entered", "left"]
    assert capfd.readouterr() == ("", ""), "it said that it answers"

    @asynccontextmanager
    async def failing(app: Starlette) -> AsyncGenerator[None]:
        async with running(app):
            yield
        raise InfraError("not all of it is gone")

    assert ended(failing) == EXIT_FAILED
    assert capfd.readouterr().err == "error: not all of it is gone\n"


def test_a_pool_server_whose_daemon_is_dead_says_what_to_do(tmp_path: Path):
    record = {"docker_url": f"unix://{tmp_path}/no.sock", "base_image": "b", "kit": "/kit", "engine_owner": ""}
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


def test_a_server_that_has_said_its_address_answers_and_ends_well_by_a_signal():
    with subprocess.Popen(
        (sys.executable, "-m", "sandbox.router", "--port", "0", "--workers", "http://127.0.0.1:9"),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert httpx.get(f"{url}healthz").json() == {"ok": True}
        process.terminate()
        assert process.wait() == EXIT_OK
