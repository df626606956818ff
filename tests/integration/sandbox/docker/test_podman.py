"""If these fail, a user who has Podman and no Docker cannot run sandboxes."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

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
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.support.sandbox.shell_image import write_shell_image

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


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(
    podman: str, docker_engine: SandboxHost, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[DockerEngine]:
    """Podman with an image that has only a shell."""
    archive: Path = tmp_path_factory.mktemp("image") / "root.tar"
    write_shell_image(archive, docker_engine.toolchain / "busybox")
    async with DockerEngine(podman) as engine:
        await engine_calls.import_archive(engine, archive, NAME, 60)
        yield engine


@asynccontextmanager
async def opened(
    engine: DockerEngine, host: SandboxHost, of_pid_1: tuple[str, ...] = ()
) -> AsyncGenerator[SandboxSession]:
    """Open a session; nothing is left of it."""
    labels = {POOL_LABEL: "podman"}
    spec = ContainerSpec(NAME, host.toolchain, labels, capabilities=(*BASE_CAPABILITIES, *of_pid_1))
    session = await SandboxSession.start(engine, spec, "/", SessionLimits(120, 120))
    try:
        yield session
    finally:
        await session.close()
    async with asyncio.timeout(60):
        while await engine.containers(labels):  # noqa: ASYNC110  the engine tells nobody
            await asyncio.sleep(0.1)


async def test_a_session_works_on_the_socket_of_podman(engine: DockerEngine, docker_engine: SandboxHost):
    async with opened(engine, docker_engine) as session:
        assert (await session.run("cd /bin; x=21; echo here", 30)).output == "here\n"
        assert (await session.run('echo "$PWD $x"', 30)).output == "/bin 21\n"


GRADES = """#!/bin/sh
echo "=== short test summary info ==="
cmp /app/answer /tests/expected && echo PASSED test_answer
"""


@pytest.mark.parametrize("level", GradingLevel)
async def test_work_is_graded_on_podman_at_every_level(
    engine: DockerEngine, docker_engine: SandboxHost, level: GradingLevel
):
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
    for made, score in (("echo 42 > /app/answer", 1.0), ("ln -s /tests/expected /app/answer", 0.0)):
        of_pid_1 = PID_1_CAPABILITIES if level is GradingLevel.LIVE else ()
        async with opened(engine, docker_engine, of_pid_1) as session:
            await session.run(made, 30)
            result = await grade_sandbox(session, task)
            assert result.score == score, result.log


async def test_images_are_built_and_evicted_on_podman_too(engine: DockerEngine, tmp_path: Path):
    store = await ImageStore.open(engine, ImageSettings(tmp_path, "none"))
    dockerfile = f'FROM {NAME}\nRUN ["/bin/bash", "-c", "(( $(ulimit -Hf) == 16 << 20 ))"]\n'
    build = ImageBuild({"Dockerfile": dockerfile.encode()})
    wanted = Task(id="t", instruction="", build=build, network=TaskNetwork(build=NetworkMode.NONE))
    async with store.reserve(wanted) as image:
        assert await engine_calls.find_image_id(engine, image)
    assert await store.prune(0)
    assert not await engine_calls.find_image_id(engine, image)
