"""If these fail, sandboxes do not work, or a limit is not held, on the Docker engines that most users have.

The set-up's engine is that of this machine's Debian. The sandbox tests run once more on Docker of a newer one, with
both of its image stores: the classic one, and containerd's, which newer engines have by default.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.host_record import HostSettings, SandboxHost
from tests.support.sandbox import newer_engine

WHY_NOT = newer_engine.why_unavailable()
pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
ROOT = Path(__file__).parents[3]
WALLS = (
    "tests/integration/sandbox/pool/test_disk_in_docker.py",
    "tests/security/test_build_walls.py",
    "tests/security/test_containers_of_others.py",
    "tests/security/test_docker_exec.py",
    "tests/security/test_seccomp_profile.py",
    "tests/security/test_silent_disk_limits.py",
)
"""Whole."""
OTHERS = (
    "tests/integration/sandbox/session/test_files_in_docker.py",
    "tests/integration/sandbox/session/test_lifetime_in_docker.py",
    "tests/integration/sandbox/session/test_limits_in_docker.py",
    "tests/integration/sandbox/session/test_users_in_docker.py",
    "tests/integration/sandbox/networking/test_network_in_docker.py",
    "tests/integration/sandbox/grading/test_grading_in_docker.py",
    "tests/integration/sandbox/images/test_images_in_docker.py",
)
"""Without their slow tests."""


@pytest.fixture(scope="module")
def engine_root(docker_engine: SandboxHost) -> Iterator[Path]:
    with newer_engine.engine_root() as root:
        yield root


def home_for_another_engine(folder: Path) -> Path:
    """A cache folder with what is in this machine's, but with a record of its own."""
    for each in HostSettings.from_environment().home.iterdir():
        if not each.name.startswith("host."):
            (folder / each.name).symlink_to(each)
    return folder


@pytest.mark.parametrize("containerd_store", [False, True], ids=["classic store", "containerd's store"])
def test_sandboxes_on_a_newer_engine(
    engine_root: Path, docker_engine: SandboxHost, tmp_path: Path, containerd_store: bool
) -> None:
    settings = {"features": {"containerd-snapshotter": containerd_store}}
    home = home_for_another_engine(tmp_path)
    with newer_engine.running_engine(engine_root, docker_engine, settings, (docker_engine.home, ROOT)) as url:
        env = {**os.environ, "DOCKER_HOST": url, "LONGSHORE_HOME": str(home)}
        for files, marks in ((WALLS, "not chaos and not gpu"), (OTHERS, "not slow and not chaos and not gpu")):
            command = (sys.executable, "-m", "pytest", "-q", "-m", marks, *files)
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
