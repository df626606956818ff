"""If these fail, a monitor that misses events, or is slow, is told to be well."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from launch.bench.monitor.benchmark import (
    MonitorBenchmarkArguments,
    MonitorBenchmarkOptions,
    MonitorBenchmarkReport,
    parse_options,
)
from launch.bench.monitor.live_run import LiveMeasurement
from launch.bench.monitor.opening_time import OpeningMeasurement
from launch.bench.server_process import read_cpu_s
from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError

OPENING = OpeningMeasurement(1.2, [1.1, 1.2, 1.3], 0.05, 150.0)
LIVE = LiveMeasurement(40.0, 300.0, 0, 0, 1000, 50, 0.5, 60.0)
GOOD = MonitorBenchmarkReport(100_032, OPENING, LIVE)


def options(*words: str) -> MonitorBenchmarkOptions:
    return parse_options(parse_arguments(MonitorBenchmarkArguments, words, "bench"))


def test_a_report_within_its_bounds_passes_with_the_requested_keys() -> None:
    report = GOOD.as_json()
    assert GOOD.passed
    assert {name: report[name] for name in ("open_s_100k", "rss_mb", "event_latency_ms", "missed_events")} == {
        "open_s_100k": 1.2, "rss_mb": 150.0, "event_latency_ms": {"p50": 40.0, "p95": 300.0}, "missed_events": 0,
    }  # fmt: skip
    assert report["run_slowdown"] == pytest.approx(0.5 / 60.0, abs=1e-5)
    assert report["failed"] == []


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (replace(GOOD, opening=replace(OPENING, open_s=2.1)), "2.1 seconds to open, and the bound is 2"),
        (replace(GOOD, opening=replace(OPENING, rss_mb=301.0)), "301 MB resident, and the bound is 300"),
        (replace(GOOD, live=replace(LIVE, p95_ms=1001.0)), "1001 ms to an event, of 95 %, and the bound is 1000"),
        (replace(GOOD, live=replace(LIVE, missed=1)), "1 events missed, and the bound is 0"),
        (replace(GOOD, live=replace(LIVE, repeated=2)), "2 events seen twice, and the bound is 0"),
        (
            replace(GOOD, live=replace(LIVE, monitor_cpu_s=3.0)),
            "0.05 of the run's processor time, and the bound is 0.02",
        ),
    ],
)
def test_a_report_beyond_a_bound_fails_with_the_reason(report: MonitorBenchmarkReport, message: str) -> None:
    assert not report.passed
    assert list(report.failures) == [message]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--trajectories", "99"], "argument --trajectories: must be at least 100"),
        (["--steps", "0"], "argument --steps: must be at least 1"),
        (["--cuts", "-1"], "argument --cuts: must be at least 0"),
        (["--output", "."], "is not an empty folder"),
    ],
)
def test_options_that_cannot_be_measured_are_refused(words: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        options(*words)


def test_the_processor_time_of_a_process_is_read(tmp_path: Path) -> None:
    before = read_cpu_s(os.getpid())
    while time.process_time() < before + 0.05:
        pass
    assert read_cpu_s(os.getpid()) > before
