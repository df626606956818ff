"""If these fail, invalid text in a tool call ends an episode as an infrastructure failure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandbox.errors import ShellBusy
from sandbox.providers.remote import RemotePool
from sandbox.tasks.task import Task
from sandbox.tools import SETA, SHELL_ONLY, TERMINAL_BENCH, ToolContext, call_tool
from tests.support.fakes.fake_pid1 import FakePid1
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.http_servers import pool_server

HUGE = 10**400
"""A number that JSON can hold but a float cannot."""


@pytest.mark.parametrize("seconds", [HUGE, -HUGE, "1e999999", "nan", "soon", None, [], {}], ids=repr)
async def test_any_value_for_seconds_gets_an_answer(seconds: object):
    pid_1 = FakePid1()
    context = ToolContext(pid_1.session, 0.0)
    await call_tool(context, "shell_exec", {"id": "a", "command": "sleep 1"}, SETA)
    (named,) = pid_1.session.named_sessions.values()
    assert named.shell is not None
    named.shell.abandon()
    waited = await call_tool(context, "shell_wait", {"id": "a", "wait_seconds": seconds}, SETA)
    assert waited.text
    if isinstance(seconds, int):
        typed = await call_tool(context, "terminal_keystrokes", {"keystrokes": "", "duration": seconds}, TERMINAL_BENCH)
        assert waited.text == "Error: argument 'wait_seconds' must be a number of seconds."
        assert typed.text == "Error: argument 'duration' must be a number of seconds."


@pytest.mark.parametrize("number", [HUGE, 10**5000], ids=["long", "longer"])
async def test_any_number_as_a_shell_id_gets_an_answer(number: int):
    done = await call_tool(ToolContext(FakePid1().session, 0.0), "shell_exec", {"id": number, "command": "true"}, SETA)
    assert done.text


@pytest.mark.parametrize("arguments", [["x"], "x", None, 3], ids=repr)
async def test_arguments_that_are_not_an_object_get_an_answer(arguments: object):
    done = await call_tool(ToolContext(FakePid1().session, 0.0), "shell_exec", arguments)
    assert done.text == "Error: the arguments must be an object with a name for each."


async def test_a_command_for_a_busy_shell_gets_an_error():
    pid_1 = FakePid1()
    context = ToolContext(pid_1.session, 0.0)
    await call_tool(context, "shell_exec", {"id": "a", "command": "sleep 1000"}, SETA)
    with pytest.raises(ShellBusy, match="still runs a command"):
        await pid_1.session.run("true", 1.0)
    reply = await call_tool(context, "shell_exec", {"command": "true"}, SHELL_ONLY)
    assert reply.text == "Error: the shell still runs a command: wait for it, or end it first."
    await asyncio.sleep(0)
    assert [kind for kind, _ in pid_1.received_frames] == ["R"], "a second command was sent"


async def test_odd_arguments_sent_through_a_server_leave_the_sandbox_alive(tmp_path: Path):
    provider = FakeProvider()
    async with pool_server(provider, tmp_path) as (url, _), RemotePool(url, acquire_s=60.0) as pool:
        sandbox = await pool.open(Task("t", ""))
        provider.opened[0].error = ShellBusy()
        with pytest.raises(ShellBusy, match="still runs a command"):
            await sandbox.run("true", 1.0)
        provider.opened[0].error = None
        assert (await sandbox.run("true", 1.0)).exit_code == 0
        for odd in (HUGE, 10**5000, "half \ud800"):
            assert (await sandbox.call_tool("shell_wait", {"id": "a", "wait_seconds": odd})).text
