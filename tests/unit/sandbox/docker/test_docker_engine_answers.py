"""If these fail, one hiccup of the daemon fails a pool's start, or a lost container is attributed to the wrong
cause."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import aiodocker
import aiohttp
import pytest
from aiohttp import web

from sandbox.docker import engine as engine_module
from sandbox.docker import retry
from sandbox.docker.container_end import ContainerEndCause, container_end_cause
from sandbox.docker.engine import DockerEngine, MachineSize
from sandbox.docker.files.loop_disk import find_upper_layer
from sandbox.docker.retry import DockerEngineError, call_with_retries, read_refusal

SAID: dict[str, Any] = {
    "/info": {"LiveRestoreEnabled": True, "Driver": "btrfs", "NCPU": 2, "MemTotal": (7 << 30) + 1},
    "/containers/c/json": {"GraphDriver": {"Data": {"UpperDir": "/upper"}}},
}


def event(action: str, at_s: float, **attributes: str) -> dict[str, Any]:
    return {"Action": action, "timeNano": int(at_s * 1e9), "Actor": {"Attributes": attributes}}


OOM, DIED = event("oom", 1000.0), event("die", 1000.2, exitCode="137")


class FakeDockerDaemon:
    """A daemon on its own socket; answers the first ``fails`` requests with ``status`` and an invalid body."""

    def __init__(self) -> None:
        self.fails, self.status, self.requests = 0, 500, 0
        self.events = [[OOM, DIED]]
        """Set the events that it reports at the first and at later requests."""

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix("/v1.45")
        if path in ("/version", "/_ping"):
            return web.json_response({"ApiVersion": "1.45"})
        self.requests += 1
        if self.requests <= self.fails:
            return web.json_response({"message": "not now"}, status=self.status)
        if request.method == "POST":
            return web.Response(status=204)
        if path == "/events":
            return web.Response(text="".join(f"{json.dumps(each)}\n" for each in self.events.pop(0)))
        return web.json_response(SAID[path])


@pytest.fixture
async def daemon(monkeypatch: pytest.MonkeyPatch) -> FakeDockerDaemon:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.0)
    return FakeDockerDaemon()


@pytest.fixture
async def engine(daemon: FakeDockerDaemon, tmp_path: Path) -> AsyncGenerator[DockerEngine]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", daemon.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "d.sock")).start()
    try:
        async with DockerEngine(f"unix://{tmp_path}/d.sock") as opened:
            yield opened
    finally:
        await runner.cleanup()


Question = Callable[[DockerEngine], Any]
QUESTIONS: dict[str, tuple[Question, object]] = {
    "live restore": (lambda engine: engine.has_live_restore(), True),
    "machine": (lambda engine: engine.machine(), MachineSize(2, 7 << 10)),
    "cause": (lambda engine: engine.ending_cause("c", 0.0), None),
    "layer": (lambda engine: find_upper_layer(engine, "c"), Path("/upper")),
}


@pytest.mark.parametrize("name", QUESTIONS)
async def test_an_error_of_a_busy_daemon_is_retried(engine: DockerEngine, daemon: FakeDockerDaemon, name: str):
    ask, expected = QUESTIONS[name]
    daemon.fails = 2
    answer = await ask(engine)
    assert daemon.requests == 3
    assert answer.out_of_memory if expected is None else answer == expected


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize(("status", "requests"), [(500, 5), (400, 1)])
async def test_a_persistently_failing_daemon_raises_an_error_with_its_status(
    engine: DockerEngine, daemon: FakeDockerDaemon, name: str, status: int, requests: int
):
    daemon.fails, daemon.status = 99, status
    with pytest.raises(DockerEngineError, match=r"could not .*not now") as caught:
        await QUESTIONS[name][0](engine)
    assert (caught.value.status, daemon.requests) == (status, requests)


async def test_a_call_is_retried_only_for_the_given_statuses(engine: DockerEngine, daemon: FakeDockerDaemon):
    calls: list[int] = []

    async def call() -> str:
        calls.append(len(calls))
        if len(calls) < 3:
            raise DockerEngineError("not now", 503)
        return "done"

    assert await call_with_retries("do it", call, frozenset({503})) == "done"
    calls.clear()
    with pytest.raises(DockerEngineError, match="could not do it: not now"):
        await call_with_retries("do it", call, frozenset({500}))
    assert len(calls) == 1


async def test_a_dropped_connection_is_retried_only_for_idempotent_calls(daemon: FakeDockerDaemon):
    calls: list[int] = []

    async def call() -> None:
        calls.append(0)
        raise aiohttp.ServerDisconnectedError

    for idempotent, times in ((True, 5), (False, 1)):
        calls.clear()
        with pytest.raises(DockerEngineError):
            await call_with_retries("do it", call, frozenset(), idempotent=idempotent)
        assert len(calls) == times


async def test_a_dropped_connection_reported_by_aiodocker_is_treated_alike(daemon: FakeDockerDaemon):
    calls: list[int] = []

    async def call() -> None:
        calls.append(0)
        raise aiodocker.DockerError(900, "Cannot connect to Docker Engine")

    for idempotent, times in ((True, 5), (False, 1)):
        calls.clear()
        with pytest.raises(DockerEngineError) as caught:
            await call_with_retries("do it", call, frozenset(), idempotent=idempotent)
        assert (len(calls), caught.value.status) == (times, 0)


@pytest.mark.parametrize(
    ("events", "out_of_memory", "killed"),
    [
        ([], False, False),
        ([OOM, DIED], True, False),
        ([DIED, event("oom", 1000.3)], True, False),
        ([OOM], False, False),
        ([OOM, event("die", 1060.0)], False, False),
        ([OOM, event("oom", 1059.9), event("die", 1060.0)], True, False),
        ([event("kill", 999.0, signal="9"), DIED], False, True),
        ([event("kill", 999.0, signal="10"), OOM, DIED], True, True),
    ],
)
def test_an_oom_event_is_the_cause_of_death_only_if_close_to_it(events, out_of_memory: bool, killed: bool):
    assert container_end_cause(events) == ContainerEndCause(
        out_of_memory, killed, "die" in [each["Action"] for each in events]
    )


async def test_a_death_not_yet_reported_by_the_daemon_is_awaited(
    engine: DockerEngine, daemon: FakeDockerDaemon, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_module, "LONGEST_PAUSE_S", 0.0)
    daemon.events = [[], [OOM], [OOM, DIED]]
    assert (await engine.ending_cause("c", 0.0)).out_of_memory
    daemon.events = [[OOM], [OOM], []]
    monkeypatch.setattr(engine_module, "DEATH_S", -1.0)
    assert not (await engine.ending_cause("c", 0.0)).out_of_memory
    assert len(daemon.events) == 1


@pytest.mark.parametrize(
    ("remembered", "unsure"),
    [
        ([], True),
        ([event("create", 1001.0)], True),
        ([event("create", 999.0), event("create", 1001.0)], False),
        ([event("create", 1001.0)] * 256, True),
        ([event("create", 999.0), *[event("create", 1001.0)] * 255], False),
    ],
    ids=["nothing", "only later events", "an earlier event", "so many that it forgets", "an earlier event and many"],
)
async def test_only_an_event_older_than_the_container_proves_that_the_daemon_was_not_restarted(
    engine: DockerEngine, daemon: FakeDockerDaemon, monkeypatch: pytest.MonkeyPatch, remembered, unsure: bool
):
    """Otherwise an agent is charged with the second restart of dockerd in a sample, if many events follow it."""
    monkeypatch.setattr(engine_module, "DEATH_S", -1.0)
    daemon.events = [[], remembered]
    cause = await engine.ending_cause("c", 1000.0)
    assert (cause.death_seen, cause.daemon_may_have_restarted) == (False, unsure)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"message":"unknown instruction: FOO"}\n', "unknown instruction: FOO"),
        ('{"cause": "a", "message": "b", "response": 500}', "b"),
        ("404 page not found\n", "404 page not found"),
        ('["a"]', '["a"]'),
        ('{"message": 5}', '{"message": 5}'),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_what_the_daemon_refuses_is_a_sentence(body: str, said: str) -> None:
    assert read_refusal(body) == said
