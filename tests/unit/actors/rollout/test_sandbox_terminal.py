"""If these fail, an agent that kills its container again and again is never charged for it, or an innocent one is."""

from __future__ import annotations

import asyncio
import re

import pytest

from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.terminal import SandboxDestroyedByAgent
from sandbox.browser.browser import SandboxBrowser
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError, SandboxVanished
from sandbox.tasks.task import Task
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from sandbox.tools import BROWSER, SETA
from tests.support.actors.episodes import local_sandbox, terminal_limits

VANISHED = SandboxVanished("nothing says why")


class OneCommandShell:
    """Runs one command, which ends after some time that it does not say."""

    slot, cwd, busy, has_ended = 0, "/", False, True

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s

    def start(self, *_: object) -> None: ...

    async def wait_until_ended(self, _: float) -> bool:
        await asyncio.sleep(self.wait_s)
        return False

    def new_output(self) -> str:
        return ""


class FakeBusySession:
    """A session with SETA's tools in which every command goes on in the background."""

    workdir = "/app"

    def __init__(self, wait_s: float) -> None:
        self.shell = OneCommandShell(wait_s)
        self.named_sessions: dict[str, object] = {}


class FakeEndingSession:
    """Ends, with the same error, whatever is asked of it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def run(self, command: str, timeout_s: float, on_output: object) -> None:
        raise self.error

    def request(self, build: object) -> None: ...

    async def wait_acknowledged(self, request: None, timeout_s: float) -> None:
        raise self.error


def terminal(error: Exception, *, vanished_before: bool) -> SandboxTerminal:
    task = Task(id="t", instruction="list", expected_tests=("a",))
    return SandboxTerminal(local_sandbox(FakeEndingSession(error), task), task, terminal_limits(), vanished_before)


@pytest.mark.parametrize(
    ("error", "vanished_before", "expected"),
    [
        (SandboxDestroyed("out of memory"), False, SandboxDestroyedByAgent),
        (VANISHED, False, SandboxVanished),
        (VANISHED, True, SandboxDestroyedByAgent),
        (SandboxLost("the daemon does not answer"), True, SandboxLost),
    ],
)
async def test_an_agent_is_charged_on_evidence_or_for_the_second_unexplained_loss(
    error: Exception, vanished_before: bool, expected: type[Exception]
) -> None:
    with pytest.raises((SandboxDestroyedByAgent, SandboxLost)) as caught:
        await terminal(error, vanished_before=vanished_before).call(
            "shell_exec", {"id": "main", "command": "true"}, print
        )
    assert type(caught.value) is expected


async def test_time_spent_waiting_for_a_running_command_is_charged_to_the_agent() -> None:
    """Otherwise an agent that only waits would never reach its time limit, and infrastructure would be blamed."""
    task = Task(id="t", instruction="list", expected_tests=("a",))
    waiting = SandboxTerminal(
        local_sandbox(FakeBusySession(0.05), task), task, terminal_limits(command_s=0.05), tools=SETA
    )
    answer = await waiting.call("shell_exec", {"id": "a", "command": "sleep 9"}, print)
    assert "is still running" in answer.text
    assert answer.ms > 25


async def test_an_agent_can_call_only_tools_of_its_set() -> None:
    task = Task(id="t", instruction="list", expected_tests=("a",))
    answer = await SandboxTerminal(local_sandbox(FakeBusySession(0.0), task), task, terminal_limits()).call(
        "shell_view", {"id": "a"}, print
    )
    assert answer.text == "Error: unknown tool 'shell_view'. Available: shell_exec."


async def test_a_sandbox_lost_before_the_first_action_is_not_charged_to_the_agent() -> None:
    with pytest.raises(SandboxVanished):
        await terminal(VANISHED, vanished_before=True).grade("")


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (
            TaskNetwork(allowed_hosts=("example.org",)),
            "silence (the task asks .*: --set sandbox.network=task gives it)",
        ),
        (TaskNetwork(agent=NetworkMode.PROXY, allowed_hosts=("example.org",)), "silence"),
        (TaskNetwork(), "silence"),
    ],
)
async def test_a_page_that_does_not_answer_for_want_of_a_network_is_told_with_how_to_give_it(
    monkeypatch: pytest.MonkeyPatch, network: TaskNetwork, says: str
) -> None:
    async def find_silence(*_: object) -> None:
        raise SandboxStartError("silence")

    monkeypatch.setattr(SandboxBrowser, "open", find_silence)
    task = Task(id="t", instruction="look", start_url="https://example.org/", network=network)
    with pytest.raises(SandboxStartError) as caught:
        await SandboxTerminal(local_sandbox(None, task), task, terminal_limits(), tools=BROWSER).begin()
    assert re.fullmatch(says.replace("(", r"\(").replace(")", r"\)"), str(caught.value))
