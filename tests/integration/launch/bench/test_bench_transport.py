"""If this fails, nobody can measure again what docs/benchmarks.md says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from launch.bench.transport.backpressure import measure_stall
from protocol.cli.exit_codes import EXIT_USER
from tests.support.commands import call_json

KEYS = [
    "tokens",
    "ours_per_s",
    "ours_durable_per_s",
    "ray_queue_per_s",
    "raw_zmq_per_s",
    "raw_zmq_blocking_per_s",
    "ray_object_store_per_s",
    "sqlite_raw_per_s",
    "vs_ray_queue",
    "durable_vs_ray_queue",
    "vs_raw_zmq",
    "durable_vs_sqlite_raw",
    "lost_ours",
    "lost_pubsub",
]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launch.bench", "transport", "--json", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=800)


@pytest.mark.ray
@pytest.mark.slow
def test_every_arm_runs_and_a_stalled_reader_loses_data_only_with_pubsub() -> None:
    done = bench("--tokens", "1024,8192", "--duration-s", "1", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert [case["tokens"] for case in cases] == [1024, 8192]
    for case in cases:
        assert list(case) == KEYS
        assert case["lost_ours"] == 0
        assert case["lost_pubsub"] > 0
        assert all(case[key] > 0 for key in KEYS if key.endswith("_per_s"))


@pytest.mark.slow
def test_a_stalled_reader_loses_nothing_and_the_kernel_confirms_the_memory_its_sender_holds() -> None:
    """Otherwise a sender whose memory grows without a bound would pass by its own count."""
    stall = measure_stall(8192)
    assert (stall.lost, stall.excesses) == (0, [])
    assert stall.receiver_grown_bytes >= stall.receiver_held_bytes > stall.window_bytes // 2
    assert stall.sender_grown_bytes >= stall.sender_held_bytes > stall.window_bytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", "many"], "argument --tokens: must be a valid integer"),
        (["--tokens", "1"], "lengths are 2 to 131072 tokens"),
        (["--rounds", "0"], "argument --rounds: must be at least 1"),
        (["--output", "/nowhere"], "no folder /nowhere"),
    ],
)
def test_invalid_options_are_refused_in_one_line(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    done = call_json(capfd, "launch.bench", "transport", *arguments)
    assert done.exit_code == EXIT_USER
    assert message in done.output["error"]
