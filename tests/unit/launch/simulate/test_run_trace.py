"""If these fail, a replayed run is not the run that was measured, and the simulator is judged by another one."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from launch.config import load_recipe
from launch.run_records.stored_config import config_tables
from launch.simulate.run_trace import RunTrace, extract_trace, read_trace, write_trace
from launch.simulate.simulated_cluster import SimulationSettings, simulate
from protocol import codec
from protocol.errors import UserError
from protocol.events import EventLog
from protocol.run_directory.trajectory_export import TrajectoryExporter
from tests.support.runs.trajectories import make_trajectory

DATA = Path(__file__).resolve().parents[3] / "data"
YOUNG, OLD = DATA / "demo_16_steps.json", DATA / "demo_old_tokens.json"
"""Four groups a step, weights published every second step; one group a step, weights published after each."""
SIZE = 8


def replayed(trace: RunTrace, cell: SimulationSettings) -> tuple[float, float]:
    """(trained tokens a second, mean staleness) over what the run measured."""
    outcome = simulate(trace.scenario, cell, trace.workload, 0, trace.replay_overrides)
    account, measured = outcome.account, trace.measured
    mean = sum(steps * tokens for steps, tokens in enumerate(account.tokens_by_staleness())) / account.trained
    return account.trained / account.seconds / measured.trained_tokens_per_s, mean / measured.staleness_mean


@pytest.mark.parametrize("path", [YOUNG, OLD], ids=lambda path: path.stem)
def test_a_replay_has_the_speed_and_staleness_of_the_measured_run(path: Path) -> None:
    """A small model's episodes and steps took what they took, who waits for whom is simulated."""
    trace = read_trace(path)
    assert replayed(trace, trace.settings) == pytest.approx((1.0, 1.0), rel=0.1)


@pytest.mark.parametrize(("path", "times"), [(YOUNG, 0.5), (YOUNG, 2.0), (OLD, 0.5)])
def test_a_replay_with_another_number_in_flight_does_not_match_the_measured_run(path: Path, times: float) -> None:
    """Neither its speed nor its staleness: else the figures would agree whatever was simulated.  (Of the old tokens'
    run twice as many would come out alike, since the staleness bound lets no more begin.)"""
    trace = read_trace(path)
    rate, staleness = replayed(trace, trace.settings._replace(in_flight=round(times * trace.file.in_flight)))
    assert rate != pytest.approx(1.0, rel=0.25)
    assert staleness != pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"nodes": 0}, "nodes"),
        ({"mode": "sometimes"}, "mode"),
        ({"steps": []}, "steps"),
        (
            {"steps": [{"busy_s": 1, "wait_s": 0, "trained_tokens": 0, "staleness_mean": 0}]},
            "no step has trained a token",
        ),
        ({"groups": []}, "groups"),
        ({"group_size": SIZE + 1}, f"group_size = {SIZE + 1} episodes"),
        ({"group_size": 1}, "group_size"),
        ({"max_staleness": 1 << 60}, "max_staleness"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused_by_name(
    tmp_path: Path, change: dict[str, object], why: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(orjson.dumps(orjson.loads(OLD.read_bytes()) | change))
    with pytest.raises(UserError, match=why):
        read_trace(path)


def test_an_episode_without_room_for_a_reply_is_replayed_too() -> None:
    trace = read_trace(YOUNG)
    first, *others = trace.file.groups[0]
    groups = [[first.model_copy(update={"turns": []}), *others], *trace.file.groups[1:]]
    changed = RunTrace(trace.file.model_copy(update={"groups": groups}))
    assert replayed(changed, changed.settings) == pytest.approx((1.0, 1.0), rel=0.1)


def test_a_trace_that_cannot_be_written_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no-folder"):
        write_trace(read_trace(OLD), tmp_path / "no-folder" / "trace.json")


def write_run(run_dir: Path, values: list[str], addresses: list[str]) -> None:
    """One step, one group, a node at each of ``addresses``."""
    config = load_recipe("demo", [f"cluster.nodes={len(addresses)}", "cluster.address='10.0.0.1:6379'", *values])
    (run_dir / "config.json").write_bytes(orjson.dumps({"config": config_tables(config)}))
    line = {"step": 1, "t": 1e12, "elapsed_s": 5.0, "wait_s": 1.0, "trained_tokens": 40, "staleness_mean": 1.0}
    (run_dir / "metrics.jsonl").write_bytes(orjson.dumps(line) + b"\n")
    driver, exporter = EventLog(run_dir, "driver-1", "node-0"), TrajectoryExporter(run_dir)
    for index, address in enumerate(addresses):
        driver.emit("node.up", name=f"node-{index}", address=address)
    for sample in range(SIZE):
        trajectory = make_trajectory(0, sample, size=SIZE)
        frames = codec.encode_trajectory(trajectory)
        driver.emit("episode.started", trajectory=f"{trajectory.request.trajectory_id}-a0")
        exporter.export_trajectory(codec.inspect_frames(frames, max_bytes=1 << 20), codec.pack_frames(frames))
        driver.emit("trajectory.stored", trajectory=trajectory.request.trajectory_id)


def test_groups_in_a_truncated_segment_are_left_out_of_a_trace(tmp_path: Path) -> None:
    write_run(tmp_path, [], ["10.0.0.1"])
    assert len(extract_trace(tmp_path).groups) == 1
    (segment,) = tmp_path.rglob("*-00001.bin")
    segment.chmod(0o644)
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 1)
    with pytest.raises(UserError, match="name another run"):
        extract_trace(tmp_path)


def test_a_torn_event_does_not_change_a_trace(tmp_path: Path) -> None:
    write_run(tmp_path, [], ["10.0.0.1"])
    (events,) = (tmp_path / "events").glob("*.jsonl")
    whole = extract_trace(tmp_path)
    with events.open("ab") as file:
        file.write(b'{"kind":"trajectory.stored","traj\n')
    assert extract_trace(tmp_path) == whole


@pytest.mark.parametrize(
    ("values", "addresses", "in_flight"),
    [
        ([], ["10.0.0.1"], 32),
        ([], ["10.0.0.1"] * 2, 32),
        ([], ["10.0.0.1"] * 8, 32),
        ([], ["10.0.0.1", "10.0.0.2"], 64),
        ([], ["10.0.0.1", "10.0.0.2", "10.0.0.3"], 64),
        (["engine.max_running=16"], ["10.0.0.1"], 16),
        (["rollout.in_flight=5"], ["10.0.0.1"], 5),
        (["rollout.in_flight=500"], ["10.0.0.1"], 32),
    ],
)
def test_a_replay_has_as_many_episodes_in_flight_as_the_run_could_have(
    tmp_path: Path, values: list[str], addresses: list[str], in_flight: int
) -> None:
    """The engines bound them, and the places, which nodes on one machine share."""
    write_run(tmp_path, values, addresses)
    assert extract_trace(tmp_path).in_flight == in_flight
