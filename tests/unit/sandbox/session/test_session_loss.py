"""If these fail, a lost sandbox is attributed to the agent although the daemon did not see the agent cause it."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox.docker.container_end import ContainerEndCause
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxVanished
from sandbox.grading.containers import agent_processes
from sandbox.pool.heartbeat import SessionHeartbeat
from sandbox.session.init_connection.init_messages import ByeReason, InitBye
from sandbox.session.sandbox_session import SandboxSession

OUT_OF_MEMORY = ContainerEndCause(out_of_memory=True, killed_by_api=False, death_seen=True)
FORGOTTEN = ContainerEndCause(out_of_memory=False, killed_by_api=False, death_seen=False)


class RememberingDaemon:
    """Answers only the request for a container's events."""

    def __init__(self, answer: ContainerEndCause | DockerEngineError) -> None:
        self.answer = answer

    async def ending_cause(self, container: str, since: float) -> ContainerEndCause:
        if isinstance(self.answer, DockerEngineError):
            raise self.answer
        return self.answer


class FakeRunningDaemon:
    """Reports the container as running, or fails itself."""

    def __init__(self, trouble: DockerEngineError | None) -> None:
        self.trouble = trouble

    async def require_running(self, container: str) -> None:
        if self.trouble is not None:
            raise self.trouble


@pytest.mark.parametrize(
    ("trouble", "expected"), [(None, SandboxVanished), (DockerEngineError("no answer"), SandboxLost)]
)
async def test_a_silent_pid_1_is_blamed_on_the_daemon_only_if_the_daemon_fails(trouble, expected, monkeypatch):
    """Otherwise an agent that slows its PID 1 down gets a new sandbox each time."""
    monkeypatch.setattr(agent_processes, "ANSWER_S", 0.01)
    session = SandboxSession(FakeRunningDaemon(trouble), "c" * 64, b"")
    with pytest.raises(SandboxLost, match="PID 1 did not answer before grading") as caught:
        await agent_processes.kill_agent_processes(session)
    assert type(caught.value) is expected


async def test_an_answer_that_a_broken_stream_delayed_is_not_missed_for_the_agent(monkeypatch):
    """Otherwise two restarts of dockerd in a sample count as the agent's deed."""
    monkeypatch.setattr(agent_processes, "ANSWER_S", 0.01)
    session = SandboxSession(FakeRunningDaemon(None), "c" * 64, b"")
    session.on_stream_broken = lambda: None  # its pool opens another one
    session.on_break(None)
    with pytest.raises(SandboxLost, match="broke meanwhile") as caught:
        await agent_processes.kill_agent_processes(session)
    assert type(caught.value) is SandboxLost


@pytest.mark.parametrize(
    ("answer", "bye", "broken", "expected"),
    [
        (OUT_OF_MEMORY, None, None, SandboxDestroyed),
        (replace(OUT_OF_MEMORY, killed_by_api=True), None, None, SandboxLost),
        (ContainerEndCause(out_of_memory=False, killed_by_api=False, death_seen=True), None, None, SandboxVanished),
        (ContainerEndCause(out_of_memory=False, killed_by_api=True, death_seen=True), None, None, SandboxLost),
        (FORGOTTEN, None, None, SandboxVanished),
        (replace(FORGOTTEN, daemon_may_have_restarted=True), None, None, SandboxLost),
        (DockerEngineError("no answer"), None, None, SandboxLost),
        (OUT_OF_MEMORY, ByeReason.DEADLINE, None, SandboxLost),
        (OUT_OF_MEMORY, None, ConnectionResetError(), SandboxLost),
    ],
)
async def test_the_cause_of_a_loss_decides_whether_the_agent_is_charged(answer, bye, broken, expected):
    session = SandboxSession(RememberingDaemon(answer), "c" * 64, b"")
    if bye is not None:
        session.on_message(InitBye(bye))
    session.on_break(broken)
    with pytest.raises((SandboxDestroyed, SandboxLost)) as caught:
        await session.run("true", 1)
    assert type(caught.value) is expected


class ForgetfulDaemon:
    """Remembers how a container ended until it is asked for the first time."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def ending_cause(self, container: str, since: float) -> ContainerEndCause:
        answer = replace(FORGOTTEN, daemon_may_have_restarted=True) if self.asked.is_set() else OUT_OF_MEMORY
        self.asked.set()
        return answer


@pytest.mark.parametrize("verifies", [False, True])
async def test_the_cause_of_an_end_is_asked_before_the_daemon_forgets_it(verifies: bool):
    """Otherwise an agent that used up its memory while its model thinks gets a new sandbox on a busy machine."""
    daemon, heartbeat = ForgetfulDaemon(), SessionHeartbeat(60.0, SimpleNamespace(maintain=lambda: None))
    session, other = (SandboxSession(daemon, name * 64, b"") for name in "co")
    session.spec = other.spec = ContainerSpec("image", Path("/toolchain"), {})
    async with heartbeat.running():
        heartbeat.watch(other if verifies else session, 3600.0)
        with other.watch_verifier(session) if verifies else nullcontext():
            session.on_break(None)
            async with asyncio.timeout(30):
                await daemon.asked.wait()
    with pytest.raises(SandboxDestroyed, match="memory"):
        await session.run("true", 1)
