"""If these fail, what an agent left running is not graded as it runs, or it reads the tests or writes their verdict."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest

from protocol.errors import UserError
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.retry import Json
from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from tests.support.tasks.cheats.graders import REWARD
from tests.support.tasks.cheats.live_attacks import (
    GUEST,
    ON_PROCESS,
    PERL_CALLS,
    TESTS,
    THROUGH_NOBODY,
    attack_every_process,
)
from tests.support.tasks.public_test_scripts import HARBOR, REPORTS

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
HEAD = '#!/bin/bash\necho "=== short test summary info ==="\n'


def live(body: str, *expected: str, **more) -> Task:
    return Task(
        "live", "", run_tests=HEAD + body, expected_tests=expected, grading=GradingLevel.LIVE, test_timeout_s=S, **more
    )


async def leave(session: SandboxSession, *commands: str) -> None:
    """Run commands; each that ends in ``&`` goes on in the background."""
    for command in commands:
        job = command.endswith("&")
        done = await session.run(f"({command.rstrip('&')}) < /dev/null > /dev/null 2>&1 &" if job else command, S)
        assert done.exit_code == 0, done.output


# ---- the work of an agent


@pytest.mark.parametrize(
    ("commands", "body"),
    [
        (
            ("echo hello > /app/page; /.sbx/busybox httpd -p 127.0.0.1:8123 -h /app",),
            '[ "$(wget -q -O - http://127.0.0.1:8123/page)" = hello ] && echo PASSED x',
        ),
        (("sleep 1; echo done > /app/late&",), "sleep 2; [ -e /app/late ] && echo PASSED x"),
        (
            ("exec -a the-job sleep 1000&",),
            "for each in /proc/[0-9]*; do case $(tr '\\0' ' ' < $each/cmdline) in the-job*) echo PASSED x;; esac; done",
        ),
        (
            (
                "mkdir -p /home/git/keys",
                "while sleep 0.1; do cp /home/git/keys/a /app/new; mv /app/new /app/taken; done&",
            ),
            "echo ours > /home/git/keys/a; sleep 1; [ $(cat /app/taken) = ours ] && echo PASSED x",
        ),
        (("mkfifo /app/pipe; echo ready > /app/pipe&",), '[ "$(timeout 5 cat /app/pipe)" = ready ] && echo PASSED x'),
    ],
    ids=["server", "job that ends later", "process", "key in a home", "pipe"],
)  # fmt: skip
async def test_running_processes_of_the_agent_are_tested_as_they_run(
    pool: SandboxPool, commands: tuple[str, ...], body: str
):
    task = live(body, "x")
    async with pool.acquire(task) as session:
        await leave(session, *commands)
        result = await grade_sandbox(session, task)
        assert (result.score, result.level, result.isolation) == (1.0, GradingLevel.LIVE, Isolation.LIVE), result.log
    async with pool.acquire(same := replace(task, grading=GradingLevel.SAME)) as session:
        await leave(session, *commands)
        assert (await grade_sandbox(session, same)).score == 0.0, "the level makes no difference to this test"


@pytest.mark.usefixtures("verifier_half")
async def test_a_stock_script_runs_on_the_toolchain_and_its_reports_count(pool: SandboxPool):
    tests = b"""
import socket

def test_it_answers():
    with socket.create_connection(("127.0.0.1", 8123), 5) as client:
        client.sendall(b"GET /page HTTP/1.0\\r\\n\\r\\n")
        assert client.recv(1000).startswith(b"HTTP/1")
"""
    task = Task(
        "stock", "", run_tests=HARBOR, tests={"test_outputs.py": tests}, reports=REPORTS, grading=GradingLevel.LIVE
    )
    async with pool.acquire(task) as session:
        assert (await grade_sandbox(session, task)).score == 0.0
        await leave(session, "/.sbx/busybox httpd -p 127.0.0.1:8123 -h /app")
        result = await grade_sandbox(session, task)
        assert (result.score, result.isolation) == (1.0, Isolation.LIVE), result.log


async def test_a_sandbox_goes_on_after_it_has_been_graded(pool: SandboxPool):
    tests = "(setsid sleep 2000 &); start-stop-daemon -S -b -c 65534:65534 -x /.sbx/busybox -- sleep 2000"
    task = live(f"echo secret > /logs/verifier/note; {tests}; sleep 2000 & echo PASSED x", "x")
    async with pool.acquire(task) as session:
        await leave(session, "mkdir -p /logs; echo before > /logs/agent", "sleep 1000&")
        await session.run("cd /tmp; kept=1", S)
        assert (await grade_sandbox(session, task)).score == 1.0
        left = await session.run("echo $PWD $kept; ls -A /tests /logs/verifier /.sbx-tmp; cat /logs/agent", S)
        assert left.output == "/tmp 1\n/.sbx-tmp:\n\n/logs/verifier:\n\n/tests:\nbefore\n"
        assert (await session.run("ps -e -o args | grep '[s]leep'", S)).output == "sleep 1000\n"
        mounts = await session.run(
            "grep -cE ' (/tests|/logs|/.sbx-tmp)' /proc/mounts; mv /tests /other; mv /logs /more", S
        )
        assert (mounts.output, mounts.exit_code) == ("0\n", 0)
        assert (await grade_sandbox(session, task)).score == 1.0


async def test_shells_of_the_agent_cannot_see_the_tests_while_they_run(pool: SandboxPool):
    task = live("touch /app/started; sleep 3; echo PASSED x", "x")
    async with pool.acquire(task) as session, asyncio.TaskGroup() as group:
        early, late = session.open_shell(), session.open_shell()
        await early.run("true", S)
        grading = group.create_task(grade_sandbox(session, task))
        assert (await early.run("until [ -e /app/started ]; do sleep 0.1; done; ls -A /tests", S)).output == ""
        assert (await late.run("ls -A /tests", S)).exit_code is None
        with pytest.raises(OSError, match="busy"):
            await session.open_terminal()
        assert (await grading).score == 1.0
        assert (await late.run("ls -A /tests; echo $?", S)).output == "0\n"


# ---- attacks by a process of the agent that runs as root beside the tests

UNDER_ATTACK = """
cd /tests; export HIDDEN="$(cat expected)"
(exec -a "$HIDDEN" sleep 1000) 9< expected &
touch /app/go
for i in $(seq 300); do [ -e /app/done ] && break; sleep 0.1; done
[ -e /app/done ] && echo PASSED attacked
"""


@pytest.fixture
def without_engine_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers have no filter of system calls but PID 1's own: an engine's own refuses some to everyone."""
    create_body = ContainerSpec.create_body

    def unconfined(self: ContainerSpec) -> Json:
        body = create_body(self)
        body["HostConfig"]["SecurityOpt"].append("seccomp=unconfined")
        return body

    monkeypatch.setattr(ContainerSpec, "create_body", unconfined)


@pytest.mark.parametrize("attack", ON_PROCESS)
@pytest.mark.usefixtures("without_engine_filter")
async def test_an_agent_cannot_read_from_processes_of_the_tests(pool: SandboxPool, attack: str):
    task = live(UNDER_ATTACK, "attacked", tests={"expected": TESTS.encode()})
    task = replace(task, pids=task.pids - 1)  # so that no warm sandbox is used
    async with pool.acquire(task) as session:
        await session.write_files({
            "/app/guest/expected": GUEST.encode(), "/app/attack": attack_every_process(ON_PROCESS[attack]).encode()
        })  # fmt: skip
        await leave(
            session,
            f"cd /app/guest; HIDDEN={GUEST} exec -a {GUEST} sleep 1000 9< expected&",
            "until [ -e /app/go ]; do sleep 0.1; done; perl /app/attack > /app/loot 2> /app/problems; touch /app/done&",
        )
        result = await grade_sandbox(session, task)
        loot, problems = await session.read_file("/app/loot"), await session.read_file("/app/problems")
    assert result.score == 1.0, result.log
    assert GUEST.encode() in loot, f"it works on no process: {problems}"
    assert TESTS.encode() not in loot


WRITES = f"""
touch /app/go
for i in $(seq 300); do [ -e /app/done ] && break; sleep 0.1; done
[ -e /app/done ] || exit 1
echo 0 > {REWARD}
sleep 1
"""
_FAKES = "mkdir -p {0} && echo 1 > {0}/reward.txt && echo 'echo 1 > {0}/reward.txt' > {0}/test.sh"
IN_PLACE, BESIDE = _FAKES.format("/logs/verifier"), _FAKES.format("/fake/verifier")
ON_FOLDERS = {
    "writes the reward": "echo 1 > /logs/verifier/reward.txt",
    "renames the folders": f"mv /tests /a$$; mv /logs /b$$; mv /.sbx-tmp /c$$; {IN_PLACE}; cp -r /logs/verifier /tests",
    "removes the folders": f"rm -rf /tests /logs /.sbx-tmp; {IN_PLACE}; cp -r /logs/verifier /tests",
    "makes links of them": f"{BESIDE}; rm -rf /tests /logs; ln -s /fake /logs; ln -s /fake/verifier /tests",
    "exchanges them": f'{BESIDE}; perl -e \'{PERL_CALLS} syscall(SYS_renameat2, -100, "/fake", -100, "/logs", 2)\'',
    "mounts others": f"{BESIDE}; mount --bind /fake /logs; umount -l /logs/verifier; umount -l /logs; umount -l /tests",
    "mounts others in a user namespace": f"{BESIDE}; unshare -Urm mount --bind /fake /logs",
    "enters PID 1's folders": "echo 1 > /proc/1/root/logs/verifier/reward.txt; "
    "cd /proc/1/cwd && echo 1 > logs/verifier/reward.txt; nsenter -t 1 -m sh -c 'echo 1 > /logs/verifier/reward.txt'",
}
"""What a process of the agent does as root, again and again, from before the grading until its end."""


@pytest.mark.parametrize("attack", ON_FOLDERS)
@pytest.mark.usefixtures("without_engine_filter")
async def test_an_agent_cannot_write_the_reward_of_the_tests(pool: SandboxPool, attack: str):
    task = live(WRITES, reports=(REWARD,))
    task = replace(task, pids=task.pids - 1)  # so that no warm sandbox is used
    async with pool.acquire(task) as session:
        again = f"[ -e /app/go ] && begun=1; ({ON_FOLDERS[attack]}) > /app/said 2>&1; [ $begun ] && touch /app/done"
        await leave(session, "mkdir -p /logs/verifier /tests", f"while sleep 0.01; do {again}; done&")
        result = await grade_sandbox(session, task)
        said = await session.read_file("/app/said")
    assert result.score == 0.0, result.log
    assert result.reward == 0.0 or "no folder of their own" in result.log, result.log
    assert b"not found" not in said, said


@pytest.mark.usefixtures("without_engine_filter")
async def test_tests_that_are_killed_give_no_verdict(pool: SandboxPool):
    kill = "kill -9 $(grep -l tests/test.sh /proc/[0-9]*/cmdline | cut -d/ -f3)"
    task = live(f"echo 1 > {REWARD}; touch /app/go; sleep 10", reports=(REWARD,))
    async with pool.acquire(task) as session:
        await leave(session, f"while [ ! -e /app/go ]; do sleep 0.1; done; {kill}&")
        result = await grade_sandbox(session, task)
        assert (result.score, result.timed_out) == (0.0, False), result.log
        assert "killed" in result.log


async def test_a_user_namespace_and_a_mount_are_refused(pool: SandboxPool, without_engine_filter: None):
    tries = {
        "unshare(CLONE_NEWUSER)": "syscall(SYS_unshare, 0x10000000)",
        "unshare(CLONE_NEWNS)": "syscall(SYS_unshare, 0x20000)",
        "clone(CLONE_NEWUSER)": "syscall(SYS_clone, 0x10000011, 0, 0, 0, 0)",
        "clone3": "syscall(SYS_clone3, pack('Q11', 0x10000000, (0) x 3, 17, (0) x 6), 88)",
        "setns": "do { open(my $own, '<', '/proc/self/ns/user'); syscall(SYS_setns, fileno($own), 0) }",
        "mount": "syscall(SYS_mount, $place, $place, $kind, 0, 0)",
        "umount": "syscall(SYS_umount2, $place, 2)",
    }
    task = live("", "x")
    task = replace(task, pids=task.pids - 1)
    async with pool.acquire(task) as session:
        lines = "\n".join(f'print "{name} ", {call}, " ", $! + 0, "\\n";' for name, call in tries.items())
        await session.write_files(
            {"/app/tries": f"{PERL_CALLS}my ($place, $kind) = ('/dev/shm', 'tmpfs');\n{lines}".encode()}
        )
        said = (await session.run("perl /app/tries", S)).output.splitlines()
        assert said == [f"{name} -1 {errno.ENOSYS if name == 'clone3' else errno.EPERM}" for name in tries]


async def test_a_container_that_may_not_mount_private_folders_is_refused(pool: SandboxPool):
    task = live("echo PASSED x", "x")
    async with pool.acquire(replace(task, grading=GradingLevel.SAME)) as session:
        with pytest.raises(UserError, match="may not mount private folders"):
            await grade_sandbox(session, task)
        assert (await session.run("echo alive", S)).output == "alive\n"


async def test_a_program_that_tests_run_as_user_nobody_exposes_the_tests_to_an_agent(pool: SandboxPool):
    """A limit of the level, which docs/grading.md names: without the tests' capability nothing protects a process."""
    body = "touch /app/go; start-stop-daemon -S -q -c 65534:65534 -x /usr/bin/perl -- -e 'sleep 5'; echo PASSED x"
    task = live(body, "x", tests={"expected": TESTS.encode()})
    async with pool.acquire(task) as session:
        await session.write_files({"/app/attack": THROUGH_NOBODY.encode()})
        await leave(session, "until [ -e /app/go ]; do sleep 0.1; done; sleep 1; perl /app/attack > /app/loot&")
        result = await grade_sandbox(session, task)
        assert result.score == 1.0, result.log
        assert TESTS.encode() in await session.read_file("/app/loot")
