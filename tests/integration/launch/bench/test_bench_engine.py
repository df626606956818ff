"""If this fails, nobody can measure the curve that the simulator's engines follow."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.sglang
@pytest.mark.slow
def test_an_engines_speed_is_measured_at_each_load() -> None:
    command = [sys.executable, "-m", "launch.bench", "engine", "--json"]
    sizes = ["--requests", "1,16", "--tokens", "40", "--rounds", "1"]
    done = subprocess.run([*command, *sizes], check=False, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-4000:]
    loads = json.loads(done.stdout)["loads"]
    assert [load["requests"] for load in loads] == [1, 16]
    assert all(load["tokens_per_s"] > 0 for load in loads)
