"""If these fail, a sandbox behaves differently at Daytona (:mod:`tests.support.sandbox.daytona_provider`) than at other
providers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
import pytest_asyncio

from sandbox.errors import SandboxLost, SandboxStartError, SandboxVanished
from sandbox.grading.isolation.decision import Isolation
from sandbox.host_record import SandboxHost
from sandbox.providers.daytona.provider import DaytonaProvider
from sandbox.providers.interface import Sandbox, open_sandbox
from sandbox.tasks.task import Task
from tests.support.sandbox.daytona_provider import fake_daytona_provider
from tests.support.sandbox.provider_cases import CASES, TASK, S

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider(docker_engine: SandboxHost) -> AsyncGenerator[DaytonaProvider]:
    async with fake_daytona_provider(docker_engine) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(provider: DaytonaProvider) -> AsyncGenerator[Sandbox]:
    async with open_sandbox(provider, TASK) as opened:
        yield opened


@pytest.mark.parametrize("name", CASES)
async def test_the_provider_keeps_the_sandbox_contract(sandbox: Sandbox, name: str):
    await CASES[name](sandbox)


async def test_grading_tells_right_from_wrong(provider: DaytonaProvider):
    for command, ratio in (("true", 0.5), ("touch /app/done", 1.0)):
        async with open_sandbox(provider, TASK) as fresh:
            await fresh.run(command, S)
            graded = await fresh.grade()
            assert (graded.pass_ratio, graded.all_passed) == (ratio, ratio == 1.0)
            assert [test.name for test in graded.tests] == ["one", "two"]
            assert graded.isolation is Isolation.IMAGE
            assert (await fresh.run("ls -d /tests 2>&1 | wc -l; ls /tests 2>/dev/null", S)).output == "1\n"


async def test_no_process_of_the_agent_runs_when_the_tests_begin(provider: DaytonaProvider):
    """This includes processes that have left their shell and change their name."""
    watcher = "while :; do [ -e /tests ] && touch /app/done; sleep 0.01; done"
    async with open_sandbox(provider, TASK) as fresh:
        await fresh.run(f"(setsid env -i bash -c {watcher!r} >/dev/null 2>&1 &); sleep 0.2", S)
        assert (await fresh.grade()).pass_ratio == 0.5


async def test_tests_that_hang_or_say_nothing_prove_nothing(provider: DaytonaProvider):
    hangs = replace(TASK, run_tests="#!/bin/bash\nsleep 600\n")
    silent = replace(TASK, run_tests="#!/bin/bash\nexit 0\n")
    for task, timed_out in ((hangs, True), (silent, False)):
        async with open_sandbox(provider, task) as fresh:
            graded = await fresh.grade(2.0)
            assert (graded.pass_ratio, graded.timed_out) == (0.0, timed_out)


async def test_reports_that_tests_leave_are_read(provider: DaytonaProvider):
    report = "/logs/verifier/reward.txt"
    task = replace(TASK, run_tests=f"#!/bin/bash\necho 1 > {report}\n", reports=(report,), expected_tests=())
    async with open_sandbox(provider, task) as fresh:
        await fresh.run("mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt", S)
        assert (await fresh.grade()).all_passed


async def test_a_closed_sandbox_is_lost_and_closing_twice_is_no_error(provider: DaytonaProvider):
    async with open_sandbox(provider, TASK) as fresh:
        await fresh.close()
        assert not fresh.alive
        with pytest.raises(SandboxLost):
            await fresh.run("true", S)


async def test_two_sandboxes_share_nothing(provider: DaytonaProvider):
    async with open_sandbox(provider, TASK) as one, open_sandbox(provider, TASK) as other:
        await one.run("echo one > /tmp/mine; a=one", S)
        assert (await other.run("cat /tmp/mine 2>/dev/null; echo $a", S)).output == "\n"


async def test_a_task_that_cannot_start_raises_a_sandbox_start_error(provider: DaytonaProvider):
    with pytest.raises(SandboxStartError, match="setup exited with 7"):
        await provider.open(Task(id="bad", instruction="", setup="exit 7"))


async def test_a_sandbox_survives_an_agent_that_kills_all_processes(provider: DaytonaProvider):
    """This includes the shell's keeper, and the call that waits for its command."""
    async with open_sandbox(provider, TASK) as fresh:
        assert (await fresh.run("kill -9 -1; echo here", S)).output == "here\n"
        assert (await fresh.run("echo alive", S)).output == "alive\n"
        died = await fresh.run("cd /tmp; bash -c 'kill -9 -1'; echo not here", S)
        assert (died.timed_out, died.shell_restarted, died.exit_code) == (False, True, 137)
        assert (await fresh.run("echo alive", S)).output == "alive\n"
        assert (await fresh.grade()).pass_ratio == 0.5


async def test_a_shell_keeps_what_an_agent_types_as_far_as_a_loop_in_it_can(sandbox: Sandbox):
    """docs/sandboxes.md has the commands for which it is not what a terminal's is."""
    for commands, output in (
        (["U=bob PWD=hunter2; echo $U", "cd /tmp; pwd"], "bob\n/tmp\n"),
        (["read -r U PWD <<< 'a b'; echo $U", "unset PWD", "pwd"], "a\n/tmp\n"),
        (["! true", "if [ $? -eq 0 ]; then echo FOUND; else echo MISSING; fi"], "MISSING\n"),
        (["false", "trap 'echo error' ERR", "echo $?", "trap - ERR"], "0\n"),
        (["printf() { echo own; }", "printf x", "unset -f printf"], "own\n"),
        (["read() { :; }", "eval() { :; }", "export() { :; }", "echo hi", "unset -f read eval export"], "hi\n"),
        (["exec 3< /etc/passwd", "head -c 4 <&3", "exec 3<&-"], "root"),
        (["IFS=12 LC_ALL=C", "set -u; shopt -s extdebug", "echo hi", "set +u; shopt -u extdebug; unset IFS"], "hi\n"),
        (["(ulimit -n 64; ulimit -n)", "PROMPT_COMMAND='echo p'", "echo hi"], "64\nhi\n"),
        (["set -x", "echo hi", "{ set +x; } 2> /dev/null"], "+ builtin eval 'echo hi'\n++ echo hi\nhi\n"),
    ):
        assert "".join([(await sandbox.run(command, S)).output for command in commands]).startswith(output), commands
    assert (await sandbox.run("break; echo after", S)).shell_restarted
    assert (await sandbox.run("set -n", 0.5)).shell_restarted
    assert (await sandbox.run("builtin() { :; }", 0.5)).shell_restarted
    assert (await sandbox.run("echo alive", S)).output == "alive\n"


async def test_seta_sessions_run_in_the_background_and_accept_input(provider: DaytonaProvider):
    async with open_sandbox(provider, TASK) as fresh:
        begun = await fresh.call_tool(
            "shell_exec", {"id": "p", "command": "while read -r x; do echo got $x; done", "block": False}
        )
        assert begun.text.startswith("Session 'p' started.")
        assert "got hello" in (await fresh.call_tool("shell_write_to_process", {"id": "p", "command": "hello"})).text
        assert "still runs" in (await fresh.call_tool("shell_exec", {"id": "p", "command": "ls"})).text
        assert "terminated" in (await fresh.call_tool("shell_kill_process", {"id": "p"})).text
        done = await fresh.call_tool("shell_exec", {"id": "p", "command": "cd /tmp; pwd"})
        assert (done.text.splitlines()[0], done.exit_code) == ("/tmp", 0)
        assert (await fresh.call_tool("shell_exec", {"id": "p", "command": "pwd"})).text == "/tmp\n"
        wrote = {"content": "x", "file_path": "note"}
        await fresh.call_tool("shell_write_content_to_file", wrote)
        assert await fresh.read_file("/app/note") == b"x"


async def test_a_sandbox_that_daytona_has_ended_has_vanished(provider: DaytonaProvider):
    fresh = await provider.open(TASK)
    await fresh.handle.delete()
    with pytest.raises(SandboxVanished):
        await fresh.run("true", S)
    assert not fresh.alive
