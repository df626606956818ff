"""If this fails, nobody can say what a run and its servers hold after a day."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launch.bench.soak.curve_file import CURVES_FILE
from launch.bench.soak.growth import Figure
from launch.bench.soak.process_figures import MUST_LAST
from launch.bench.soak.report import PAGE_FILE
from protocol.cli.exit_codes import EXIT_USER
from sandbox.host_record import SandboxHost
from tests.support.commands import call_json


@pytest.mark.docker
@pytest.mark.ray
@pytest.mark.sglang
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_soak_watches_every_long_lived_process_and_leaves_nothing(docker_engine: SandboxHost, tmp_path: Path) -> None:
    """A minute is too short to judge a trend, so the test does not."""
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "launch.bench", "soak", "--json", "--minutes", "1", "--output", str(kept)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=2300)
    assert done.stdout, done.stderr[-6000:]
    report = json.loads(done.stdout)
    assert {part["part"] for part in report["parts"]} >= MUST_LAST, report["parts"]
    assert report["restarted"] == report["failed_uses"] == report["left_behind"] == []
    work = report["work"]
    assert min(work[name] for name in ("sandbox sessions", "environment episodes", "monitor pages")) > 0, work
    containers = [part["peak"] for part in report["parts"] if part["figure"] == Figure.CONTAINERS.value]
    assert containers[0] > 0, "no sandbox was counted"
    assert done.returncode == bool(report["failed"])
    assert {CURVES_FILE, PAGE_FILE} <= {path.name for path in kept.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--minutes", "0"], "argument --minutes: must be at least 0.5"),
        (["--output", "tests"], "tests is not an empty folder"),
        (["--judge", "tests"], "tests has no curves.csv of a soak"),
    ],
)
def test_invalid_options_are_refused_in_one_line(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    done = call_json(capfd, "launch.bench", "soak", *arguments)
    assert done.exit_code == EXIT_USER
    assert message in done.output["error"]
