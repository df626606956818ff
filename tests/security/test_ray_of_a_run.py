"""Another local user reaches for the Ray nodes that a run starts on loopback.

If this fails, every account of the machine can run code as the one that trains."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.other_user import needs_root, run_as_nobody

pytestmark = [pytest.mark.ray, needs_root]

NODES = """
import asyncio, os, sys
from pathlib import Path
from launch.hosts.ray_environment import resolve_ray_environment
os.environ.update(resolve_ray_environment(""))
from launch.hosts.cluster_nodes import start_local_nodes
async def main():
    async with start_local_nodes(1, Path(sys.argv[1])):
        import ray
        print("started", ray.get_runtime_context().gcs_address, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""
OVERWRITE = """
try:
    GcsClient(address=sys.argv[1]).internal_kv_put(b"key", b"value", True, b"fun")
    print("written")
except Exception as error:
    print(type(error).__name__, error)
"""
LIST = """
try:
    print(os.listdir(sys.argv[1]))
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="ls-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """That of a run's own Ray."""
    command = [sys.executable, "-c", NODES, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nodes:
        assert nodes.stdout is not None
        lines = iter(nodes.stdout.readline, "")
        yield next(line.split()[1] for line in lines if line.startswith("started "))
        nodes.communicate("\n")


@pytest.mark.slow
def test_another_user_can_neither_write_to_ray_nor_enter_its_session(address: str, folder: Path) -> None:
    for env in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "guessed"}):
        answer = run_as_nobody("import sys\nfrom ray._raylet import GcsClient", OVERWRITE, address, env=env)
        assert "written" not in answer
        assert "token" in answer.lower() or "unauthenticated" in answer.lower(), answer
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert run_as_nobody("import os, sys", LIST, str(folder / "ray")) == "PermissionError"
