"""If this fails, nobody can say for how long new weights stop an engine, or how small a delta is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.sglang
@pytest.mark.slow
def test_every_path_is_measured_beside_the_floor() -> None:
    command = [sys.executable, "-m", "launch.bench", "weights", "--json"]
    sizes = ["--pushes", "6", "--engines", "1", "--requests", "2", "--tokens", "200", "--seconds", "2", "--drains", "1"]
    sizes += ["--histories", "1"]
    done = subprocess.run([*command, *sizes], check=False, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout)
    assert said["pushes"] == 6
    assert 0 < said["delta"]["bytes_share"] < min(0.1, said["delta"]["bytes_share_1e-5"])
    assert 0 < said["full"]["stall_ms_p50"] <= min(said["full"]["stall_ms_p95"], said["full"]["push_ms"])
    assert min(said["floor_ms"], said["drained_update_ms"], said["delta"]["apply_ms"]) > 0
    rates = dict(said["tokens_per_s"])
    routes = rates.pop("during_by_route")
    assert routes.keys() == {"full", "delta", "broadcast", "tensors", "direct"}
    assert min(*rates.values(), *routes.values()) > 0
    fresh, session = said["prefix_reuse"]["1k"]["version"], said["prefix_reuse"]["1k"]["session"]
    assert fresh["re_prefilled_tokens_per_push"] > 1024 > session["re_prefilled_tokens_per_push"]
    assert fresh["prefix_hit_share"] < session["prefix_hit_share"]
