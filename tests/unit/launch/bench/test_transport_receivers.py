"""If these fail, a measurement takes what was only acknowledged for what lies on the disk, or holds whatever it saw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch.bench.transport import receivers
from launch.bench.transport.backpressure import StallMeasurement
from launch.bench.transport.benchmark import TransportCase, TransportReport
from launch.bench.transport.workload import (
    GROUP_SIZE,
    RUN,
    build_trajectory,
    group_plan,
    number_trajectories,
    trajectory_number,
)
from protocol import codec
from protocol.journal import Journal, JournalSettings, TrajectoryArrival


def test_only_trajectories_in_the_journal_with_their_payload_count(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    settings = JournalSettings(
        run_id=RUN, max_trajectory_bytes=1 << 20, budget_bytes=1 << 30, disk_floor_bytes=0, dynamic_sampling=False
    )
    journal = Journal(path, settings)
    for group in (0, 1):
        journal.open_group(group_plan(group), b"")
    sent = list(number_trajectories(build_trajectory(64), 2 * GROUP_SIZE))
    for trajectory in sent[:-1]:
        frames, request = codec.encode_trajectory(trajectory), trajectory.request
        blob, digest = codec.pack_frames(frames), codec.frames_digest(frames)
        journal.append_batch([TrajectoryArrival(request, 1.0, True, trajectory.status, digest, blob, 32)])
    journal.close()
    assert receivers.read_stored(path) == {trajectory_number(trajectory.request) for trajectory in sent[:-1]}
    assert {trajectory_number(trajectory.request) for trajectory in sent} - receivers.read_stored(path) == {
        2 * GROUP_SIZE - 1
    }


CASE = TransportCase(8192, *[1.0] * 7, *[0.1] * 4, lost_ours=0, lost_pubsub=9)
STALL = StallMeasurement(0, 64 << 10, 32 << 20, 32 << 20, 64 << 20, 80 << 20, 100 << 20)


def test_a_measurement_passes_at_any_speed_if_nothing_is_lost_and_memory_is_bounded() -> None:
    assert TransportReport((CASE,), (STALL,)).passed


@pytest.mark.parametrize(
    ("case", "stall", "message"),
    [
        ({"lost_ours": 1}, {}, "1 lost by ours"),
        ({"lost_pubsub": 0}, {}, "the stall was none"),
        ({}, {"receiver_held_bytes": 33 << 20}, "the receiver held 34603008 bytes"),
        ({}, {"sender_held_bytes": 65 << 20}, "the sender held 68157440 bytes"),
        ({}, {"receiver_grown_bytes": 101 << 20}, "the receiver's process grew by 105906176 bytes"),
        ({}, {"sender_grown_bytes": 161 << 20}, "the sender's process grew by 168820736 bytes"),
    ],
)
def test_a_loss_and_memory_beyond_its_bound_fail_a_measurement(
    case: dict[str, int], stall: dict[str, int], message: str
) -> None:
    report = TransportReport((CASE, replace(CASE, **case)), (STALL, replace(STALL, **stall)))
    assert not report.passed
    (failure,) = report.failures
    assert failure.startswith("8192 tokens: ")
    assert message in failure
