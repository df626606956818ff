"""The check that a GPU machine runs: every stage of it ends well on a CPU, with shapes that are small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tools.gpu_check.__main__ import STAGES

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_every_stage_of_the_gpu_check_passes_on_this_machine(tmp_path: Path) -> None:
    """A quarter of an hour of a GPU is too short to find out there that the check itself is broken."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OUT": str(tmp_path)}
    command = [sys.executable, "-m", "tools.gpu_check", "--small", "--output", str(tmp_path), "--budget", "1800"]
    done = subprocess.run(command, check=False, capture_output=True, env=environment, cwd=ROOT)
    rows = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert [row["stage"] for row in rows] == list(STAGES)
    assert [row for row in rows if not row["ok"]] == []
    assert (tmp_path / "gpu_check.jsonl").read_bytes() == done.stdout
