"""If this fails, a task with network ``full`` has no network on an engine with a bridge, or its tests share the
agent's."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.docker import daemon
from sandbox.grading.grader import grade_sandbox
from sandbox.host_record import SandboxHost
from sandbox.networking.networks import SHARED_NETWORK
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
WORLD, PORT = "198.51.100.1", 8000
"""Address that no bridge has, in the daemon's network namespace."""
_START_S = 120.0
SERVER = f"""
import socket
listening = socket.create_server(("{WORLD}", {PORT}))
while True:
    listening.accept()[0].sendall(b"the world")
"""
ASK = f"(exec 3<>/dev/tcp/{WORLD}/{PORT}; timeout 10 cat <&3) 2>&1"


@dataclass(frozen=True, slots=True)
class Bridged:
    """A dockerd with bridge and packet filter in its own network namespace."""

    host: SandboxHost
    namespace: int
    """PID of the process that holds the namespace."""


@pytest.fixture
def bridged(docker_engine: SandboxHost, tmp_path: Path) -> Generator[Bridged]:
    for program in ("dockerd", "unshare", "nsenter", "iptables", "ip"):
        if os.geteuid() != 0 or shutil.which(program) is None:
            pytest.skip(f"an engine with a bridge needs root and {program}")
    run = Path(f"/run/ls-bridge-{os.getpid()}")  # a socket's path must be short
    run.mkdir()
    (tmp_path / "none.json").write_text(json.dumps({}))
    url, log = f"unix://{run}/docker.sock", tmp_path / "log"
    script = (
        f"ip link set lo up && ip address add {WORLD}/32 dev lo && iptables -t nat -L >&2 && "
        f"exec dockerd --host={url} --data-root={tmp_path}/data --exec-root={run}/exec --pidfile={run}/docker.pid "
        f"--log-level=warn --config-file={tmp_path}/none.json"
    )
    with log.open("ab") as sink:
        dockerd = subprocess.Popen(["unshare", "-n", "sh", "-c", script], stdout=sink, stderr=sink)
    server: subprocess.Popen[bytes] | None = None
    try:
        give_up = time.monotonic() + _START_S
        while not daemon.engine_answers(url):
            if dockerd.poll() is not None or time.monotonic() > give_up:
                pytest.skip(f"no engine with a bridge can be started here: {log.read_text()[-1500:]}")
            time.sleep(0.1)
        image = tmp_path / "image.tar"
        saving = ("docker", "--host", docker_engine.docker_url, "save", "-o", str(image), docker_engine.base_image)
        daemon.run_program(saving, "save the base image")
        daemon.run_program(("docker", "--host", url, "load", "-i", str(image)), "load the base image")
        server = subprocess.Popen(["nsenter", f"--net=/proc/{dockerd.pid}/ns/net", sys.executable, "-c", SERVER])
        yield Bridged(dataclasses.replace(docker_engine, docker_url=url, engine_owner=""), dockerd.pid)
    finally:
        for process in filter(None, (server, dockerd)):
            process.terminate()
            process.wait(60)
        for each in Path("/proc").glob("[0-9]*/cmdline"):  # a shim that is left has our folder in its arguments
            with contextlib.suppress(OSError):
                if str(run).encode() in each.read_bytes():
                    os.kill(int(each.parent.name), signal.SIGKILL)
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith((str(tmp_path), str(run))):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(run, ignore_errors=True)


async def sees_world(session: SandboxSession) -> bool:
    return (await session.run(ASK, S)).output == "the world"


async def test_network_full_uses_the_bridge_and_each_phase_has_a_separate_network(bridged: Bridged):
    script = f"[[ $({ASK}) == 'the world' ]] && echo PASSED it || echo FAILED it\n"
    reached = f"#!/bin/bash\necho short test summary info; {script}"
    full = TaskNetwork(agent=NetworkMode.FULL, verify=NetworkMode.FULL)
    task = Task("bridged", "", run_tests=reached, network=full, grading=GradingLevel.SIBLING, artifacts=("/app",))
    async with SandboxPool(PoolSettings("bridged", "test", 3), bridged.host) as pool:
        before = await pool.engine.inventory()
        for level in GradingLevel:
            for verify in (NetworkMode.FULL, NetworkMode.NONE):
                each = dataclasses.replace(task, grading=level, network=dataclasses.replace(full, verify=verify))
                async with pool.acquire(each) as session:
                    assert session.spec is not None
                    assert session.spec.network == SHARED_NETWORK
                    await session.run("kept=yes", S)
                    assert await sees_world(session)
                    assert (await grade_sandbox(session, each)).all_passed == (verify is NetworkMode.FULL)
                    assert await sees_world(session), "the agent's network did not come back"
                    if level is GradingLevel.SIBLING:
                        assert (await session.run("echo $kept", S)).output == "yes\n"
        async with pool.acquire(task) as one, pool.acquire(task) as other:
            address = (await other.run("hostname -i", S)).output.strip()
            listen = "$s = IO::Socket::INET->new(Listen => 1, LocalPort => 99); sleep"
            await other.run(f"perl -MIO::Socket::INET -e '{listen}' & until grep -q :0063 /proc/net/tcp; do :; done", S)
            ask = f"timeout 5 bash -c '</dev/tcp/{address}/99' && echo reached"
            assert "reached" not in (await one.run(ask, S)).output, "sandboxes reach each other"
        async with pool.acquire(dataclasses.replace(task, network=TaskNetwork())) as closed:
            assert not await sees_world(closed)
        after = await pool.engine.inventory()
        assert len(after.networks - before.networks) == 1, "only the one that all share"


async def test_a_build_has_the_bridge_or_nothing(bridged: Bridged):
    def task(mode: NetworkMode, wanted: str) -> Task:
        run = f'RUN ["bash", "-c", "[[ $({ASK}) {wanted} *world* ]]"]'
        build = ImageBuild({"Dockerfile": f"FROM {bridged.host.base_image}\n{run}\n".encode()})
        return Task("built", "", build=build, network=TaskNetwork(build=mode))

    async with SandboxPool(PoolSettings("bridged", "test", 1), bridged.host) as pool:
        for mode, wanted in ((NetworkMode.FULL, "=="), (NetworkMode.NONE, "!=")):
            async with pool.acquire(task(mode, wanted)) as session:
                assert (await session.run("echo built", S)).output == "built\n"
