"""If these fail, a sandbox can harm its host or its neighbours; the limits are tested from inside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.docker.container_spec import OOM_SCORE_ADJ
from sandbox.errors import TaskFault
from sandbox.grading.grader import grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.process_limits import UNLIMITED, ProcessLimit
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TaskService
from sandbox.tasks.task_grading import GradingLevel

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="limits", instruction="", memory_mb=192, pids=48, cpus=0.5)
S = 60.0
_NUMBERS = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "NET_RAW": 13,
    "SYS_CHROOT": 18, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "MKNOD": 27, "AUDIT_WRITE": 29, "SETFCAP": 31,
}  # fmt: skip


async def inside(pool: SandboxPool, command: str, task: Task = TASK) -> str:
    async with pool.acquire(task) as session:
        return (await session.run(command, S)).output


@pytest.mark.parametrize("level", [GradingLevel.SAME, GradingLevel.LIVE])
async def test_an_agent_has_the_base_capabilities_and_no_program_can_gain_more(pool: SandboxPool, level: GradingLevel):
    """At level ``live`` PID 1 has more."""
    shown = "grep -E '^(CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status"
    output = await inside(pool, shown, replace(TASK, grading=level))
    status = dict(line.split(":\t") for line in output.splitlines())
    wanted = sum(1 << _NUMBERS[name] for name in BASE_CAPABILITIES)
    assert {int(status[each], 16) for each in ("CapEff", "CapPrm", "CapBnd")} == {wanted}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


async def test_what_servers_and_packages_need_works(pool: SandboxPool):
    """sshd changes its root, packages set file capabilities, and services listen on low ports."""
    async with pool.acquire(TASK) as session:
        value = "struct.pack('<5I', 2 << 24, 1, 0, 0, 0)"  # CAP_CHOWN
        code = f"import os, struct; os.setxattr('/bin/true', 'security.capability', {value})"
        done = await session.run(f'chroot / true && python3 -c "{code}"', S)
        assert done.exit_code == 0, done.output
        listening = await session.run("python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 22))'", S)
        assert listening.exit_code == 0, listening.output


FORBIDDEN = (
    "mknod /app/x b 8 0",
    "mount -t tmpfs x /mnt",
    "unshare -m true",
    "unshare -U true",
    "nsenter -t 1 -m true",
    "hostname changed",
    "date -s 2001-01-01",
    "renice -n -5 $$",
    "cat /proc/1/environ",
    "echo x > /proc/1/fd/0",
    "head -c 1 /proc/kcore | grep -q .",
    "echo x > /proc/sysrq-trigger",
    "echo x > /proc/sys/kernel/core_pattern",
    "echo x > /.sbx/init",
    "rm -rf /.sbx/bin",
    "umount /.sbx",
    "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
    "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 2)'",
)


async def test_the_agent_cannot_do_anything_that_reaches_beyond_its_sandbox(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        may = [each for each in FORBIDDEN if (await session.run(f"({each}) >/dev/null 2>&1", S)).exit_code == 0]
    assert not may


async def test_there_is_no_network_but_the_containers_own_loopback(pool: SandboxPool):
    assert await inside(pool, "ls /sys/class/net; cat /proc/net/route | tail -n +2") == "lo\n"


async def test_localhost_is_the_loopback_of_the_container(pool: SandboxPool):
    server = "/.sbx/busybox httpd -p 8000 -h /etc"
    output = await inside(
        pool, f"{server}; until /.sbx/busybox wget -qO - http://localhost:8000/hosts 2>&-; do :; done"
    )
    assert output == "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tsandbox\n"


async def test_package_tools_and_other_users_work(pool: SandboxPool):
    command = (
        "useradd -m tester && install -o tester -g tester /dev/null /srv/f && stat -c %U /srv/f && "
        "su tester -c 'id -un' && (setpriv --reuid=65534 --regid=65534 --clear-groups sleep 60 & disown; "
        "until pkill -9 -x sleep; do :; done; echo killed)"
    )
    assert await inside(pool, command) == "tester\ntester\nkilled\n"


FORK = """python3 -c '
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
        made += 1
except OSError:
    print(made, flush=True)
    os.kill(-1, 9)
'"""


async def test_the_number_of_processes_is_bounded_and_reaching_the_bound_is_not_fatal(pool: SandboxPool):
    """PID 1, the shell and the forking process count too."""
    async with pool.acquire(TASK) as session:
        output = (await session.run(FORK, S)).output
        assert int(output.split()[0]) == TASK.pids - 3
        assert "alive" in (await session.run("echo alive", S)).output


async def test_memory_is_bounded_and_swap_does_not_extend_it(pool: SandboxPool):
    output = await inside(pool, "head -c 300000000 /dev/zero | tail -c 299999999 | wc -c; echo rc=${PIPESTATUS[1]}")
    assert output.endswith("rc=137\n")


def may_forbid_lowering() -> bool:
    """Return whether this machine's processes may have CAP_SYS_RESOURCE."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (bounding,) = [line.split()[1] for line in lines if line.startswith("CapBnd:")]
    return bool(int(bounding, 16) >> 24 & 1)


async def test_a_container_is_ended_before_the_run_when_the_machine_has_no_memory_left(pool: SandboxPool):
    """No process of it can change that, be it an agent's or a service's, where the engine may forbid it."""
    show = "/.sbx/busybox cat /proc/1/oom_score_adj"
    lower = "for each in $(/.sbx/busybox seq 1000 -1 -1000); do echo $each > /proc/self/oom_score_adj; done"
    lowest = f"{lower}; /.sbx/busybox cat /proc/self/oom_score_adj"
    web = f"({show}; {lowest}) > /tmp/score 2>/dev/null; exec /.sbx/busybox httpd -f -p 8000 -h /tmp"
    service = TaskService("web", command=("/.sbx/busybox", "sh", "-c", web), healthcheck="test -s /tmp/score")
    task = replace(TASK, services=(service,))
    ask = "exec 3<>/dev/tcp/web/8000; printf 'GET /score HTTP/1.0\\r\\n\\r\\n' >&3; timeout 10 cat <&3 | tail -n 2"
    async with pool.acquire(task) as session:
        outputs = [(await session.run(f"({each}) 2>/dev/null", S)).output for each in (f"{show}; {lowest}", ask)]
    assert outputs == [f"{OOM_SCORE_ADJ}\n{OOM_SCORE_ADJ if may_forbid_lowering() else 0}\n"] * 2


async def test_the_sizes_of_files_and_core_dumps_are_bounded(pool: SandboxPool):
    assert await inside(pool, "ulimit -f; ulimit -c") == f"{(2 << 30) // 1024}\n0\n"


LEAST = (
    *(ProcessLimit("nofile", 256, 256), ProcessLimit("memlock", 64 << 10, 64 << 10)),
    ProcessLimit("stack", 1 << 20, 1 << 20),
)
MOST = (
    *(ProcessLimit("nofile", 1000, 16384), ProcessLimit("memlock", 1 << 20, 2 << 20)),
    *(ProcessLimit("stack", 16 << 20, UNLIMITED), ProcessLimit("nproc", 5000, 5001), ProcessLimit("core", 0, 0)),
)


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        (LEAST, "256 256 64 64 1024 1024 4096 4096"),
        (MOST, "1000 16384 1024 2048 16384 unlimited 5000 5001"),
    ],
    ids=["least", "most"],
)
@pytest.mark.parametrize("level", [GradingLevel.SAME, GradingLevel.LIVE, GradingLevel.COMMIT])
async def test_limits_of_each_process_that_a_task_sets_are_those_of_its_agent_and_its_tests(
    pool: SandboxPool, limits: tuple[ProcessLimit, ...], shown: str, level: GradingLevel
):
    """The harness's own programs, pytest among them, live with them too."""
    show = "echo $(for each in n l s u; do ulimit -S$each; ulimit -H$each; done)"
    tests = f"import subprocess\n\ndef test_limits():\n    done = subprocess.check_output(['bash', '-c', {show!r}])\n"
    tests += f"    assert done.decode() == {shown!r} + '\\n'\n"
    task = replace(
        TASK,
        ulimits=limits,
        cpus=2.0,
        grading=level,
        test_timeout_s=300.0,
        tests={"test_limits.py": tests.encode()},
        run_tests="python3 -m pytest -rA /tests/test_limits.py",
    )
    async with pool.acquire(task) as session:
        assert (await session.run(show, S)).output == f"{shown}\n"
        graded = await grade_sandbox(session, task)
        assert graded.all_passed, graded.log


async def test_limits_beyond_those_of_the_machine_are_the_tasks_fault(pool: SandboxPool):
    """A nested machine allows no more than its own."""
    task = replace(TASK, ulimits=(ProcessLimit("nofile", 1 << 20, 1 << 20),))
    try:
        assert await inside(pool, "ulimit -n", task) == f"{1 << 20}\n"
    except TaskFault as fault:
        assert "rlimit" in str(fault)  # noqa: PT017  the machine decides which of the two it is


async def test_cpu_is_bounded(pool: SandboxPool):
    """The kernel's own record shows that half a core was the limit."""
    output = await inside(
        pool,
        "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null; "
        "cat /sys/fs/cgroup/cpu/cpu.cfs_period_us 2>/dev/null",
    )
    quota, period = map(int, output.split())
    assert quota / period == TASK.cpus
