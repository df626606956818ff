"""If these fail, an agent in a sandbox of a server's is charged for what a server did, or meets other limits than its
run's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.terminal import SandboxDestroyedByAgent
from actors.workers.provider_spec import ProviderSpec
from actors.workers.sandbox_source import open_sandbox_source, sandbox_group_of
from protocol.errors import UserError
from protocol.trajectory import GroupId, RolloutRequest
from sandbox.agent_programs import AgentPrograms
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxVanished
from sandbox.grading.canaries import CanaryVerdict
from sandbox.pool.settings import PoolSettings
from sandbox.providers.interface import SandboxGroup
from sandbox.tasks.task import Task
from sandbox.tools import CODE_INTERPRETER, SETA, TERMINAL_BENCH, Toolset
from tests.support.actors.episodes import terminal_limits
from tests.support.fakes.fake_provider import FakeProvider, FakeSandbox
from tests.support.network.http_servers import pool_server

TASK = Task(id="t", instruction="list", expected_tests=("a",), workdir="/app")


def terminal(tools: Toolset | None = None, *, vanished_before: bool = False) -> tuple[SandboxTerminal, FakeSandbox]:
    sandbox = FakeSandbox(FakeProvider(), "c1", TASK)
    if tools is None:
        return SandboxTerminal(sandbox, TASK, terminal_limits(), vanished_before), sandbox
    return SandboxTerminal(sandbox, TASK, terminal_limits(), vanished_before, tools=tools), sandbox


async def test_a_command_is_run_shown_and_its_output_truncated() -> None:
    place, sandbox = terminal()
    shown: list[str] = []
    outcome = await place.call("shell_exec", {"command": "x" * 3000}, shown.append)
    assert sandbox.calls == ["x" * 3000]
    assert shown == [outcome.raw] == ["x" * 3000 + "\n"]
    assert len(outcome.text) < 1200
    assert (await place.call("shell_view", {"id": "a"}, print)).text.startswith("Error: unknown tool 'shell_view'")


async def test_programs_run_as_files_and_seta_tools_are_called_in_the_sandbox() -> None:
    place, sandbox = terminal(CODE_INTERPRETER)
    await place.call("code_interpreter", {"code": "print(1)"}, print)
    assert [*sandbox.files.values()] == [b"print(1)"]
    assert "python3" in sandbox.calls[0]
    place, sandbox = terminal(SETA)
    assert (await place.call("shell_exec", {"id": "a", "command": "ls"}, print)).text == "ran 1"
    assert sandbox.calls == ["shell_exec ls"]
    place, _ = terminal(TERMINAL_BENCH)
    with pytest.raises(UserError, match=r"set sandbox\.provider = 'docker'"):
        await place.call("terminal_keystrokes", {"keystrokes": "a"}, print)


@pytest.mark.parametrize(
    ("error", "vanished_before", "expected"),
    [
        (SandboxDestroyed("out of memory"), False, SandboxDestroyedByAgent),
        (SandboxVanished("nothing says why"), False, SandboxVanished),
        (SandboxVanished("nothing says why"), True, SandboxDestroyedByAgent),
        (SandboxLost("the server does not answer"), True, SandboxLost),
    ],
)
async def test_only_losses_caused_by_the_agent_are_charged_to_it(
    error: Exception, vanished_before: bool, expected: type[Exception]
) -> None:
    for tools in (None, SETA):
        place, sandbox = terminal(tools, vanished_before=vanished_before)
        sandbox.error = error
        with pytest.raises((SandboxDestroyedByAgent, SandboxLost)) as caught:
            await place.call("shell_exec", {"id": "a", "command": "true"}, print)
        assert type(caught.value) is expected


async def test_a_lease_ended_by_its_server_is_an_infrastructure_failure(tmp_path: Path) -> None:
    provider = FakeProvider(programs=("harnesses/pi-1-a",))
    async with pool_server(provider, tmp_path) as (url, service):
        programs = AgentPrograms("harnesses/pi-1-a", 1, 1)
        settings, pool = ProviderSpec("pool", (url,)), PoolSettings("unused", "r", 1, agent_programs=programs)
        async with open_sandbox_source(pool, settings, episodes=3, acquire_s=60.0) as sandboxes:
            one, other = [await sandboxes.open(TASK) for _ in range(2)]
            counted = sandboxes.statistics()
            assert (counted.live, counted.started, counted.capacity) == (2, 2, 3)
            assert provider.given == [programs, programs], "a harness of the run is not there"
            assert (await SandboxTerminal(one, TASK, terminal_limits()).grade("")).all_passed
            for lease in [*service.table.all()]:
                service.close(lease.id)
            with pytest.raises(SandboxLost):
                await SandboxTerminal(other, TASK, terminal_limits()).call("shell_exec", {"command": "true"}, print)
            await one.close()
            assert sandboxes.statistics().live == 0


async def test_a_training_groups_slots_are_reserved_before_its_first_episode(tmp_path: Path) -> None:
    request = RolloutRequest("run", GroupId(7), 0, 3, "t", 11)
    async with pool_server(FakeProvider(), tmp_path) as (url, service):
        settings, pool = ProviderSpec("pool", (url,), group_slots=True), PoolSettings("unused", "r", 1)
        together = sandbox_group_of(request, settings)
        assert together == SandboxGroup("run/g000007", 3)
        async with open_sandbox_source(pool, settings, episodes=3, acquire_s=60.0) as sandboxes:
            await sandboxes.open(TASK, None, together)
            assert service.table.groups() == {"run/g000007": 3}
    for other in (replace(request, attempt=1), replace(request, purpose="before")):
        assert sandbox_group_of(other, settings) is None
    assert sandbox_group_of(request, replace(settings, group_slots=False)) is sandbox_group_of(request, None) is None


@pytest.mark.parametrize("said", CanaryVerdict)
async def test_a_run_that_its_canaries_void_needs_a_look(said: CanaryVerdict) -> None:
    place, sandbox = terminal()
    sandbox.canaries = said
    assert [said.value in why for why in (await place.grade("")).suspicious] == [True] * bool(said.value)
