"""If these fail, an agent that breaks its own container gets a score for it, or a run starts a new sandbox for it."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest

from sandbox.docker.engine import DockerEngine
from sandbox.errors import DestructionCause, SandboxDestroyed, SandboxLost
from sandbox.grading.grader import grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.init_connection import init_requests, wire
from sandbox.session.init_connection.init_command import init_key
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tools import ToolContext, call_tool

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
REWARD = "/logs/verifier/reward.txt"
RUN_TESTS = f"""#!/bin/sh
echo "== short test summary info =="
if test "$(cat /app/answer)" = 42; then echo PASSED test_answer; echo 1 > {REWARD}
else echo FAILED test_answer; echo 0 > {REWARD}; fi
"""
TASK = Task(
    id="wreck",
    instruction="write 42 to /app/answer",
    run_tests=RUN_TESTS,
    reports=(REWARD,),
    expected_tests=("test_answer",),
    test_timeout_s=S,
)
FORGED_SIGNALS = r"""
my $queued = pack("iiix4iiQ", 34, 0, -1, $$, 0, 0) . ("\0" x 96);
my $forged = pack("iiix4iiQ", 10, 0, -1, $$, 0, 0) . ("\0" x 96);
while (1) { syscall(129, 1, 10, $forged); syscall(129, $$ + 0, 34, $queued); }
"""
"""Program that fills its signal queue by rt_sigqueueinfo(2): then the kernel forgets the sender of the next signal."""
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
    "a stream for the null device": "rm -f /dev/null; "
    "printf 'Q\\004\\0\\0\\0\\0\\1\\0\\0' > /proc/self/fd/0; printf 'W\\0' > /proc/self/fd/0; kill -9 $$",
    "PID 1's processor": "chrt -i -p 0 1; renice -n 19 -p 1; renice -n 19 -u root; taskset -p 1 1; "
    "for i in $(seq 110); do (exec setsid taskset 1 sh -c 'while :; do :; done') & done; sleep 100",
    "signals that seem to come from outside": f"cat > /app/x.pl <<'EOF'\n{FORGED_SIGNALS}EOF\n"
    "(setsid env --block-signal perl /app/x.pl </dev/null >/dev/null 2>&1 &); sleep 1",
    "PID 1's limits": "prlimit --pid 1 --nofile=5:5; prlimit --pid 1 --cpu=0:0",
    "pipes": "exec 0<&- 1>&- 2>&-; for f in /proc/*/fd/*; do echo x > $f; done; exec sleep 1000",
    "folder for a file": "rm -rf /app; ln -s /proc/self /app; mount -t tmpfs x /mnt; umount /.sbx; umount -l /proc",
    "files where the tests go": f"mkdir -p /tests {REWARD}; "
    f"for d in /tests {REWARD}; do cd $d && seq 3000 | xargs touch; done",
    "a folder without end": "i=0; while [ $i -lt 3000 ] && mkdir d && cd d; do i=$((i+1)); done",
    "a system's folder moved": "mv /etc /elsewhere; touch /etc",
    "a pipe for its users": "rm /etc/passwd /etc/group; mkfifo /etc/passwd /etc/group",
    "a long list of users": "head -c 3000000 /dev/zero | tr '\\0' '\\n' >> /etc/passwd",
    "a link to its users": "mkfifo /home/p; ln -sf ../home/p /etc/group; ln -sf /proc/kmsg /etc/passwd",
    "holes": "for i in 1 2 3; do truncate -s 1G /hole$i; done",
    "every slot and process": "for i in $(seq 1 200); do (trap '' TERM HUP INT; exec setsid sleep 1000) & done; wait",
}


async def outcome(pool: SandboxPool, command: str, level: GradingLevel, limit_s: float = 2.0) -> bool:
    """Return whether the grader passes the agent's files; SandboxLost, which costs a replacement, is not caught."""
    task = replace(TASK, grading=level, artifacts=("/app",) if level is GradingLevel.ARTIFACTS else ())
    async with pool.acquire(task) as session:
        context = ToolContext(session, command_timeout_s=limit_s)
        try:
            for number in range(2):
                await call_tool(context, "shell_exec", {"id": str(number), "command": command})
            await call_tool(context, "shell_exec", {"id": "0", "command": "echo after", "block": False})
            return (await grade_sandbox(session, task)).all_passed
        except SandboxDestroyed:
            return False


FAST = {(wreck, GradingLevel.SAME) for wreck in ("all files", "all processes", "no shell")}
CASES = [
    pytest.param(command, level, id=f"{wreck}-{level}", marks=() if (wreck, level) in FAST else pytest.mark.slow)
    for wreck, command in WRECKS.items()
    for level in GradingLevel
]


@pytest.mark.parametrize(("command", "level"), CASES)
async def test_a_broken_container_scores_nothing_and_is_not_replaced(
    pool: SandboxPool, command: str, level: GradingLevel
):
    assert not await outcome(pool, command, level)


async def test_an_agent_can_neither_take_the_stream_of_pid_1_nor_change_its_limits(pool: SandboxPool):
    """With the stream it could read the tests as they arrive, and answer for PID 1."""
    async with pool.acquire(TASK) as session:
        null = (await session.run("stat -Lc '%t:%T %F' /proc/self/fd/0", S)).output
        await session.run("mv /dev/null /dev/other; kill -9 $$", S)
        assert (await session.run("stat -Lc '%t:%T %F' /proc/self/fd/0", S)).output == null
        done = await session.run("prlimit --pid 1 --nofile=5:5 2>&1; prlimit --pid $$ --nofile=50:50 && ulimit -n", S)
        assert "Operation not permitted" in done.output
        assert done.output.endswith("50\n")
        ask = "chrt -i -p 0 {0}; renice -n 19 -p {0}; renice -n 19 -g {0}; taskset -p 1 {0}; ionice -c3 -p {0}"
        refused = await session.run(f"({ask.format(1)}; renice -n 19 -u root) 2>&1 | grep -c 'not permitted'", S)
        assert refused.output == "6\n"
        assert "not permitted" not in (await session.run(f"sleep 60 & ({ask.format('$!')}) 2>&1", S)).output


async def test_an_agent_cannot_read_the_key_that_opens_a_stream_to_pid_1(pool: SandboxPool):
    """With the key, output of a tool could be taken for a new client's frames."""
    async with pool.acquire(TASK) as session:
        assert session.spec is not None
        key = init_key(session.spec.command)
        shown = await session.run(
            "cat /proc/1/cmdline /proc/1/environ /proc/self/environ /proc/1/stat 2>&1; env; ps -ef", S
        )
        assert len(key) == wire.KEY_BYTES
        assert key.decode() not in shown.output


async def test_an_invalid_frame_is_not_executed_and_the_next_stream_works(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        assert session.spec is not None
        whole = init_requests.write_frame(session.next_request(), "/app/forged", b"x")
        session.send(whole[:-1] + b"y" + init_requests.write_frame(session.next_request(), "/app/after", b"x"))
        session.send(init_key(session.spec.command)[:9] + whole)
        session.close_stream()
        await session.stream_ended()
        await session.reattach()
        assert (await session.run("ls /app; echo there", S)).output == "there\n"


@pytest.mark.slow
@pytest.mark.parametrize("level", GradingLevel)
async def test_a_container_with_more_files_than_can_be_removed_in_time_is_not_replaced_either(
    pool: SandboxPool, level: GradingLevel
):
    command = (
        f"mkdir -p /tests {REWARD}; cd /tests && seq 400000 | xargs touch; cd {REWARD} && seq 400000 | xargs touch"
    )
    assert not await outcome(pool, command, level, limit_s=S)


@pytest.mark.parametrize("level", GradingLevel)
async def test_an_agent_that_solves_its_task_scores_despite_extra_folders(pool: SandboxPool, level: GradingLevel):
    assert await outcome(pool, f"echo 42 > /app/answer; mkdir -p /tests/a {REWARD}/b", level)


async def test_a_waiter_on_a_destroyed_sandbox_is_given_the_cause(pool: SandboxPool, engine: DockerEngine):
    async with pool.acquire(TASK) as session:
        session.shell.start("sleep 1000")
        await session.destroy(SandboxDestroyed("more than its disk limit", DestructionCause.DISK))
        for _ in range(2):
            with pytest.raises(SandboxDestroyed, match="disk limit") as caught:
                await session.shell.wait_until_ended(S)
            assert caught.value.cause is DestructionCause.DISK
        with pytest.raises(SandboxDestroyed):
            await session.reattach()
        assert session.container not in (await engine.inventory()).containers


async def test_a_client_that_does_not_speak_the_protocol_ends_the_container_and_nothing_else(pool: SandboxPool):
    async def says(session: SandboxSession, frame: bytes) -> None:
        session.send(frame)
        with pytest.raises(SandboxLost):
            await session.shell.wait_until_ended(S)

    for kind, payload in ((b"?", b"abcd"), (b"R", b"abcd\0"), (b"R", b"abcd\xff\xee"), (b"K", b"")):
        async with pool.acquire(TASK) as session:
            head = kind + struct.pack("<I", len(payload))
            await says(session, head + struct.pack("<I", zlib.crc32(head + payload)) + payload)
