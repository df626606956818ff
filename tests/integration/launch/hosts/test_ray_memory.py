"""If this fails, a machine whose memory its sandboxes have used up ends the learner before them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytestmark = pytest.mark.ray

SCORE_OF_A_WORKER = """
import asyncio, os, sys
from pathlib import Path
from launch.hosts.ray_environment import resolve_ray_environment
os.environ.update(resolve_ray_environment(""))
from launch.hosts.cluster_nodes import start_local_nodes
async def main():
    async with start_local_nodes(1, Path(sys.argv[1])):
        import ray
        read = ray.remote(num_cpus=0)(Path.read_text)
        score = await asyncio.to_thread(ray.get, read.remote(Path("/proc/self/oom_score_adj")))
        print("score", score, flush=True)
asyncio.run(main())
"""


def test_the_kernel_chooses_a_worker_of_ray_no_sooner_than_other_processes() -> None:
    own = Path("/proc/self/oom_score_adj").read_text()
    with TemporaryDirectory(prefix="ls-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-c", SCORE_OF_A_WORKER, folder]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"score {own}" in said
