"""If this fails, nobody can say for how long new weights stop an engine, or how small a delta is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.sglang
@pytest.mark.slow
def test_every_weight_path_is_measured_and_so_is_the_floor() -> None:
    command = [sys.executable, "-m", "launch.bench", "weights", "--json"]
    sizes = [
        "--updates",
        "6",
        "--engines",
        "1",
        "--requests",
        "2",
        "--tokens",
        "200",
        "--duration-s",
        "2",
        "--drains",
        "1",
    ]
    sizes += ["--histories", "1"]
    done = subprocess.run([*command, *sizes], check=False, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert report["updates"] == 6
    assert 0 < report["delta"]["bytes_share"] < min(0.1, report["delta"]["bytes_share_1e-5"])
    assert 0 < report["full"]["stall_ms_p50"] <= min(report["full"]["stall_ms_p95"], report["full"]["update_ms"])
    assert min(report["floor_ms"], report["drained_update_ms"], report["delta"]["apply_ms"]) > 0
    rates = dict(report["tokens_per_s"])
    routes = rates.pop("during_by_route")
    assert routes.keys() == {"full", "delta", "broadcast", "tensors", "direct"}
    assert min(*rates.values(), *routes.values()) > 0
    fresh, session = report["prefix_reuse"]["1k"]["version"], report["prefix_reuse"]["1k"]["session"]
    assert fresh["re_prefilled_tokens_per_update"] > 1024 > session["re_prefilled_tokens_per_update"]
    assert fresh["prefix_hit_share"] < session["prefix_hit_share"]
