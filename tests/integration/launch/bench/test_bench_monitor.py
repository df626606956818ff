"""If this fails, nobody can say whether the monitor misses anything, or what it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.host_record import SandboxHost


@pytest.mark.docker
@pytest.mark.ray
@pytest.mark.sglang
@pytest.mark.slow
def test_the_bench_opens_a_long_run_and_misses_no_event_of_a_real_one(
    docker_engine: SandboxHost, tmp_path: Path
) -> None:
    sizes = ["--trajectories", "256", "--opens", "1", "--steps", "2", "--cuts", "5"]
    command = [sys.executable, "-m", "launch.bench", "monitor", "--json", *sizes, "--output", str(tmp_path / "kept")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1500)
    assert done.stdout, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert (report["missed_events"], report["repeated_events"]) == (0, 0), done.stderr[-4000:]
    assert report["trajectories"] >= 256
    assert report["events"] > 100
    assert report["cuts"] > 0
    assert report["cpu_s"]["run"] > report["cpu_s"]["monitor"] > 0
    assert done.returncode == bool(report["failed"])
    run = tmp_path / "kept" / "runs" / "watched"
    assert (run / "trained" / "index.jsonl").exists()
    assert {path.stem for path in (run / "activity").iterdir()} == {"learner", "engine-0", "worker-0-0"}
