"""If these fail, a program in a sandbox makes a system call that leads out of it, or a tool that agents use stops."""

from __future__ import annotations

import errno
import shlex
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import pytest

from sandbox.docker.address import DockerAddress
from sandbox.docker.engine import DockerEngine
from sandbox.docker.seccomp_profile import seccomp_option, seccomp_profile
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TaskService

S = 60.0
SOCKET = 41
NEVER = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "keyctl": 250, "add_key": 248,
    "request_key": 249, "userfaultfd": 323, "bpf": 321, "perf_event_open": 298, "fanotify_init": 300,
    "open_by_handle_at": 304, "kexec_load": 246, "init_module": 175, "finit_module": 313, "delete_module": 176,
    "iopl": 172, "ioperm": 173, "swapon": 167, "reboot": 169, "acct": 163, "settimeofday": 164, "clock_settime": 227,
    "mount": 165, "umount2": 166, "pivot_root": 155, "unshare": 272, "setns": 308, "mount_setattr": 442,
    "move_mount": 429, "fsopen": 430, "open_tree": 428, "quotactl": 179, "lookup_dcookie": 212, "kcmp": 312,
    "pidfd_getfd": 438, "process_madvise": 440, "move_pages": 279, "vhangup": 153, "syslog": 103, "nfsservctl": 180,
    "modify_ldt of x32": 0x40000000 + 154,
}  # fmt: skip
"""Numbers on x86-64."""
FAMILIES = {
    "ALG": 38, "VSOCK": 40, "PACKET": 17, "BLUETOOTH": 31, "RDS": 21, "TIPC": 30, "KEY": 15, "XDP": 44, "CAN": 29,
}  # fmt: skip
REFUSED = {errno.EPERM, errno.ENOSYS, -signal.SIGSYS}
ALLOWED = {"ptrace": (101,), "io_setup": (206, 1, 0), "inotify_init": (253,), "socket INET": (SOCKET, 2, 1, 0)}
CALL = r"""
foreach my $call (@ARGV) {
    my ($number, @arguments) = map { $_ + 0 } split /,/, $call;
    my $child = fork;
    unless ($child) { exit(syscall($number, @arguments) == -1 ? $! + 0 : 0) }
    waitpid($child, 0);
    print($? & 127 ? -($? & 127) : $? >> 8, "\n");
}
"""
WORKS = {
    "a server": "s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())",
    "IPv6": "socket.socket(socket.AF_INET6)",
    "a pair": "socket.socketpair()",
    "netlink": "socket.if_nameindex()",
    "threads": "t = threading.Thread(target=str); t.start(); t.join()",
    "processes": "subprocess.run(['true'], check=True)",
    "random numbers": "os.getrandom(1)",
    "memory as a file": "os.memfd_create('x')",
    "another root": "os.chroot('/')",
}


@pytest.fixture
async def pool(docker_engine: SandboxHost) -> AsyncGenerator[SandboxPool]:
    async with SandboxPool(PoolSettings("test-seccomp", "test", 2), docker_engine) as opened:
        yield opened


async def answers(pool: SandboxPool, user: str, calls: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the error number of each call, 0 for none; negative for the signal that ended the caller."""
    async with pool.acquire(Task("t", "", agent_user=user)) as session:
        words = (",".join(map(str, (*call, *[0] * (6 - len(call))))) for call in calls.values())
        done = await session.run(f"perl -e {shlex.quote(CALL)} {' '.join(words)}", S)
        assert done.exit_code == 0, done.output
        return dict(zip(calls, map(int, done.output.split()), strict=True))


@pytest.mark.first_case
@pytest.mark.docker
@pytest.mark.parametrize("user", ["", "nobody"])
async def test_no_call_that_leads_out_of_a_sandbox_is_allowed(pool: SandboxPool, user: str):
    """As root, and as another user, where PID 1 has SYS_ADMIN."""
    calls = {name: (number,) for name, number in NEVER.items()}
    sockets = {f"socket {name}": (SOCKET, family, 2, 0) for name, family in FAMILIES.items()}
    found = await answers(pool, user, calls | sockets)
    assert {name: answer for name, answer in found.items() if answer not in REFUSED} == {}


@pytest.mark.slow
@pytest.mark.docker
async def test_what_agents_use_works(pool: SandboxPool):
    assert not REFUSED & set((await answers(pool, "", ALLOWED)).values())
    code = f"import os, socket, subprocess, threading\nfor name, code in {WORKS!r}.items():\n    exec(code)\n"
    async with pool.acquire(Task("t", "")) as session:
        done = await session.run(f"python3 -c {shlex.quote(code)}", S)
        assert done.exit_code == 0, done.output


@pytest.mark.slow
@pytest.mark.docker
async def test_a_service_has_the_profile_too(pool: SandboxPool, docker_engine: SandboxHost):
    service = TaskService("db", command=("sleep", "1000"))
    async with pool.acquire(Task("t", "", services=(service,))), DockerEngine(docker_engine.docker_url) as engine:
        for container in await engine.containers({"longshore.pool": "test-seccomp"}):
            options = (await engine.inspect(container.id))["HostConfig"]["SecurityOpt"]
            assert f"seccomp={seccomp_profile()}" in options


def test_podman_gets_the_path_of_a_file_and_docker_the_profile():
    local, remote = DockerAddress.parse("unix:///run/x.sock"), DockerAddress.parse("tcp://192.0.2.1:2375")
    with seccomp_option(podman=True, address=local) as (option,):
        file = Path(option.removeprefix("seccomp="))
        assert file.read_text() == seccomp_profile()
    assert not file.exists()
    with seccomp_option(podman=True, address=remote) as options:
        assert options == ()
    with seccomp_option(podman=False, address=remote) as options:
        assert options == (f"seccomp={seccomp_profile()}",)
