"""If this fails, nobody can measure what a clean container costs a grade."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.usefixtures("docker_engine")
def test_a_right_answer_passes_in_each_place_and_its_cost_is_told() -> None:
    command = [sys.executable, "-m", "launch.bench", "grading", "--json"]
    sizes = ["--grades", "1", "--rounds", "1", "--episodes", "2"]
    done = subprocess.run([*command, *sizes], check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    places = json.loads(done.stdout)
    assert places.keys() == {"same", "live", "commit", "artifacts", "warm"}
    for measured in places.values():
        assert measured["wrong"] == 0
        assert measured["p95_ms"] >= measured["p50_ms"] > 0
        assert measured["episodes_per_core_s"] > 0
