"""If these fail, a container lacks what a compose file mounts from its task, or an agent can change tests there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.grading.grader import grade_sandbox
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.formats import terminal_bench

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
COMPOSE = """
services:
  client:
    build: {context: ., network: none}
    volumes: ["./data:/data", "./tests:/app/tests:ro"]
    network_mode: none
"""


@pytest.mark.parametrize("level", ["same", "commit"])
async def test_mounted_folders_are_the_tasks_and_tests_there_stay(
    pool: SandboxPool, docker_engine: SandboxHost, tmp_path: Path, level: str
) -> None:
    files = {
        "task.yaml": "instruction: Do it.\nparser_name: swebench\n",
        "docker-compose.yaml": COMPOSE,
        "Dockerfile": f"FROM {docker_engine.base_image}\nWORKDIR /app\nRUN mkdir /data && touch /data/of-the-image\n",
        "data/run.sh": "#!/bin/sh\necho ran\n",
        "tests/check.sh": "[ $(cat /data/answer) = 1 ] && echo PASSED || echo FAILED\n",
        "run-tests.sh": "echo SWEBench results starts here; sh /app/tests/check.sh; echo SWEBench results ends here\n",
        "longshore.yaml": f"grading: {level}\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "data/run.sh").chmod(0o755)
    task = terminal_bench.load_task(tmp_path)
    async with pool.acquire(task) as session:
        done = await session.run("ls /data; /data/run.sh; printf 2 > /data/answer", S)
        assert done.output.split() == ["run.sh", "ran"]
        cheat = await session.run("echo 'echo PASSED' > /app/tests/check.sh || rm -r /app/tests", S)
        assert "Read-only file system" in cheat.output
        assert not (await grade_sandbox(session, task)).all_passed
        await session.run("printf 1 > /data/answer", S)
        assert (await grade_sandbox(session, task)).all_passed


SHARING = """
services:
  client:
    build: {context: ., network: none}
    volumes: ["./data:/data"]
  helper:
    build: {context: ., network: none}
    command: ["/.sbx/busybox", "sh", "-c", "until [ -e /in/asked ]; do sleep 0.05; done; cat /in/* > /in/all; sleep 99"]
    volumes: ["./data:/in"]
"""


@pytest.mark.slow
async def test_a_folder_of_the_task_that_two_services_mount_is_one_folder(
    pool: SandboxPool, docker_engine: SandboxHost, tmp_path: Path
) -> None:
    files = {
        "task.yaml": "instruction: Do it.\nparser_name: swebench\n",
        "docker-compose.yaml": SHARING,
        "Dockerfile": f"FROM {docker_engine.base_image}\nWORKDIR /app\n",
        "data/given": "given\n",
        "run-tests.sh": "echo PASSED\n",
    }
    (tmp_path / "data").mkdir()
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    async with pool.acquire(terminal_bench.load_task(tmp_path)) as session:
        done = await session.run(
            "echo asked > /data/asked; until [ -s /data/all ]; do sleep 0.05; done; cat /data/all", S
        )
        assert done.output.split() == ["asked", "given"]
