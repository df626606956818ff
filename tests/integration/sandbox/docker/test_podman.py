"""If these fail, a user who has Podman and no Docker cannot run sandboxes."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import tarfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sandbox.capabilities import BASE_CAPABILITIES, PID_1_CAPABILITIES
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.daemon import engine_answers
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.grading.grader import grade_sandbox
from sandbox.host_record import SandboxHost
from sandbox.images import engine_calls
from sandbox.images.store import ImageSettings, ImageStore
from sandbox.session.sandbox_session import SandboxSession, SessionLimits
from sandbox.tasks.task import GradingLevel, ImageBuild, NetworkMode, Task, TaskNetwork

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
NAME = "longshore/test-podman:1"


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Start Podman's Docker-compatible socket with its own store."""
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.skip("needs root and Debian's podman")
    place = tmp_path_factory.mktemp("podman")
    runtime = Path(f"/run/longshore-podman-{os.getpid()}")  # a socket's path must be short
    runtime.mkdir()
    stores = ["podman", f"--root={place}/root", f"--runroot={runtime}/run", "--storage-driver=vfs"]
    url = f"unix://{runtime}/s"
    serve = [*stores, "--cgroup-manager=cgroupfs", "system", "service", "--time=0", url]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # its own wish may be more than this machine allows
    engine = '[engine]\nruntime = "runc"\n' if shutil.which("runc") else ""  # crun knows no hybrid cgroups
    (place / "conf").write_text(f'{engine}[containers]\ndefault_ulimits = ["nofile={soft}:{hard}"]\n')
    env = {**os.environ, "CONTAINERS_CONF": str(place / "conf")}
    with (place / "log").open("wb") as log, subprocess.Popen(serve, stdout=log, stderr=log, env=env) as service:
        try:
            give_up = time.monotonic() + 60
            while not engine_answers(url):
                if service.poll() is not None or time.monotonic() > give_up:
                    pytest.skip(f"podman's service does not start here: {(place / 'log').read_text()[-500:]}")
                time.sleep(0.1)
            yield url
        finally:
            service.terminate()
            service.wait(60)
            subprocess.run([*stores, "rm", "--all", "--force"], capture_output=True, check=False, timeout=120)
            shutil.rmtree(runtime, ignore_errors=True)


@asynccontextmanager
async def opened(url: str, host: SandboxHost, of_pid_1: tuple[str, ...] = ()) -> AsyncGenerator[SandboxSession]:
    """Open a pool on an image that has only bash; nothing is left of it."""
    if not (host.toolchain / "bash").exists():
        pytest.skip("the toolchain has no static bash here: longshore toolchain build says why")
    labels = {POOL_LABEL: "podman"}
    async with DockerEngine(url) as engine:
        with TemporaryDirectory() as folder:
            archive = Path(folder) / "root.tar"
            with tarfile.open(archive, "w") as tar:
                tar.add(host.toolchain / "bash", "bin/bash")
            await engine_calls.import_archive(engine, archive, NAME, 60)
        spec = ContainerSpec(NAME, host.toolchain, labels, capabilities=(*BASE_CAPABILITIES, *of_pid_1))
        session = await SandboxSession.start(engine, spec, "/", SessionLimits(120, 120))
        try:
            yield session
        finally:
            await session.close()
        async with asyncio.timeout(60):
            while await engine.containers(labels):  # noqa: ASYNC110  the engine tells nobody
                await asyncio.sleep(0.1)


async def test_a_session_works_on_the_socket_of_podman(podman: str, docker_engine: SandboxHost):
    async with opened(podman, docker_engine) as session:
        assert (await session.run("cd /bin; x=21; echo here", 30)).output == "here\n"
        assert (await session.run('echo "$PWD $x"', 30)).output == "/bin 21\n"


GRADES = """#!/bin/sh
echo "=== short test summary info ==="
cmp /app/answer /tests/expected && echo PASSED test_answer
"""


@pytest.mark.parametrize("level", GradingLevel)
async def test_work_is_graded_on_podman_at_every_level(podman: str, docker_engine: SandboxHost, level: GradingLevel):
    task = Task(
        "t",
        "",
        run_tests=GRADES,
        tests={"expected": b"42\n"},
        expected_tests=("test_answer",),
        artifacts=("/app/answer",),
        grading=level,
        test_timeout_s=60.0,
    )
    for made, score in (("echo 42 > /app/answer", 1.0), ("/.sbx/busybox ln -s /tests/expected /app/answer", 0.0)):
        of_pid_1 = PID_1_CAPABILITIES if level is GradingLevel.LIVE else ()
        async with opened(podman, docker_engine, of_pid_1) as session:
            await session.run(f"/.sbx/busybox mkdir /app; {made}", 30)
            result = await grade_sandbox(session, task)
            assert result.score == score, result.log


async def test_images_are_built_and_evicted_on_podman_too(podman: str, tmp_path: Path):
    async with DockerEngine(podman) as engine:
        store = await ImageStore.open(engine, ImageSettings(tmp_path, "none"))
        build = ImageBuild({"Dockerfile": f"FROM {NAME}\nLABEL a=b\n".encode()})
        wanted = Task(id="t", instruction="", build=build, network=TaskNetwork(build=NetworkMode.NONE))
        async with store.reserve(wanted) as image:
            assert await engine_calls.find_image_id(engine, image)
        assert await store.prune(0)
        assert not await engine_calls.find_image_id(engine, image)
