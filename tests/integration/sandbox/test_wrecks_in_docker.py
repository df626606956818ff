"""An agent that wrecks its own box.  If these fail, it scores with it, or a run pays a new sandbox for it."""

from __future__ import annotations

import pytest

from sandbox.engine import DockerEngine
from sandbox.errors import Ruin, SandboxDestroyed, SandboxLost
from sandbox.grader import grade
from sandbox.pool import SandboxPool
from sandbox.session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tools import ToolContext, call_tool

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
TASK = Task(
    id="wreck",
    instruction="write 42 to /app/answer",
    run_tests='#!/bin/sh\necho "== short test summary info =="\n'
    'if test "$(cat /app/answer)" = 42; then echo PASSED test_answer; else echo FAILED test_answer; fi\n',
    expected_tests=("test_answer",),
    test_timeout_s=S,
)
WRECKS = {
    "all files": "rm -rf --no-preserve-root / 2>/dev/null",
    "all processes": "kill -9 -1; kill -9 $$",
    "fork bomb": "b() { b | b & }; b; b; wait",
    "memory": "x=$(head -c 2000000000 /dev/zero | tr '\\0' x); echo ${#x}",
    "disk and files": "i=0; while [ $i -lt 200 ]; do head -c 1000000 /dev/zero > /f$i; i=$((i+1)); done",
    "output bomb": "head -c 30000000 /dev/zero",
    "no shell": "rm -f /bin/bash /bin/sh /usr/bin/bash /usr/bin/sh /lib64/ld-linux-x86-64.so.2; kill -9 $$",
    "signals to PID 1": "for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done; kill -STOP $$",
    "no devices": "rm -rf /dev/null /dev/ptmx /dev/pts/* /dev/shm /tmp; mkfifo /dev/null; chmod 000 / /app",
    "pipes": "exec 0<&- 1>&- 2>&-; for f in /proc/*/fd/*; do echo x > $f; done; exec sleep 1000",
    "folder for a file": "rm -rf /app; ln -s /proc/self /app; mount -t tmpfs x /mnt; umount /.sbx; umount -l /proc",
    "every slot and process": "for i in $(seq 1 200); do (trap '' TERM HUP INT; exec setsid sleep 1000) & done; wait",
}


async def outcome(pool: SandboxPool, command: str) -> bool:
    """Whether the grader passes what the agent left.  SandboxLost, which costs a replacement, is not caught."""
    async with pool.acquire(TASK) as session:
        context = ToolContext(session, command_timeout_s=2.0)
        try:
            for number in range(2):
                await call_tool(context, "shell_exec", {"id": str(number), "command": command})
            await call_tool(context, "shell_exec", {"id": "0", "command": "echo after", "block": False})
            return (await grade(session, TASK)).all_passed
        except SandboxDestroyed:
            return False


@pytest.mark.parametrize("wreck", WRECKS.values(), ids=WRECKS.keys())
async def test_a_wrecked_box_scores_nothing_and_costs_no_replacement(pool: SandboxPool, wreck: str):
    assert not await outcome(pool, wreck)


async def test_the_same_agent_scores_when_it_does_its_task(pool: SandboxPool):
    assert await outcome(pool, "echo 42 > /app/answer")


async def test_who_waits_is_told_what_the_agent_did(pool: SandboxPool, engine: DockerEngine):
    async with pool.acquire(TASK) as session:
        session.shell.start("sleep 1000")
        await session.destroy(SandboxDestroyed("more than its disk limit", Ruin.DISK))
        for _ in range(2):
            with pytest.raises(SandboxDestroyed, match="disk limit") as caught:
                await session.shell.ended(S)
            assert caught.value.how is Ruin.DISK
        with pytest.raises(SandboxDestroyed):
            await session.reattach()
        assert session.container not in (await engine.inventory()).containers


async def test_a_client_that_does_not_speak_the_protocol_ends_the_container_and_nothing_else(pool: SandboxPool):
    async def says(session: SandboxSession, frame: bytes) -> None:
        session.send(frame)
        with pytest.raises(SandboxLost):
            await session.shell.ended(S)

    for frame in (b"?\x04\0\0\0abcd", b"R\x05\0\0\0abcd\0", b"R\x06\0\0\0abcd\xff\xee", b"W\xff\xff\xff\xff"):
        async with pool.acquire(TASK) as session:
            await says(session, frame)
