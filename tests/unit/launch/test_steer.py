"""If these fail, a person cannot pause, drain or retune a run, or a run forgets that it was asked to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from actors.admission import Flow, Tuning
from actors.conductor import Standing
from launch import steering
from launch.config import RunConfig
from launch.config.rollout import EvaluationSection, SandboxSection
from launch.evaluation_request import REQUEST_FILE
from launch.rundir import config_values
from launch.standing import Stand
from launch.steer import main, steer
from launch.steering import STEERING_FILE, Steering, follow_steering, read_steering
from protocol.errors import UserError
from protocol.events import EventLog
from tests.support.remotes import LocalRemote

OWN = 64


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    record = {"config": config_values(RunConfig())}
    (tmp_path / "config.json").write_bytes(orjson.dumps(record))
    return tmp_path


class FakeConductor:
    def __init__(self) -> None:
        self.told: list[Standing] = []

    async def stand(self, standing: Standing) -> None:
        self.told.append(standing)


def test_what_is_asked_adds_up_and_can_be_taken_back(run_dir: Path) -> None:
    steer(run_dir, "pause")
    steer(run_dir, "set", ["in_flight=8", "lead=1.5"])
    assert read_steering(run_dir) == Steering(flow=Flow.PAUSE, in_flight=8, lead=1.5)
    steer(run_dir, "resume")
    steer(run_dir, "set", ["in_flight="])
    assert read_steering(run_dir).tuning(OWN) == Tuning(OWN, 1.5)
    steer(run_dir, "set", ["lead="])
    assert read_steering(run_dir).tuning(OWN) is None, "the run's own settings hold"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["set"], "set what"),
        (["set", "in_fligt=3"], "did you mean 'in_flight'"),
        (["set", "in_flight=0"], "greater than or equal to 1"),
        (["pause", "lead=1"], "takes nothing after it"),
        (["stop"], "invalid choice"),
        (["evaluate", "in_flight=3"], "takes nothing after it"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(run_dir: Path, arguments: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        main([str(run_dir), *arguments])
    assert not (run_dir / STEERING_FILE).exists()


def test_an_evaluation_can_be_asked_for_and_changes_nothing_else(run_dir: Path) -> None:
    main([str(run_dir), "evaluate"])
    main([str(run_dir), "evaluate", "--json"])
    assert (run_dir / REQUEST_FILE).exists()
    assert not (run_dir / STEERING_FILE).exists()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (RunConfig(evaluation=EvaluationSection(tasks_per_family=0)), "holds out no tasks"),
        (RunConfig(sandbox=SandboxSection(capacity_per_node=16)), r"--set sandbox\.capacity_per_node=20"),
    ],
)
def test_an_evaluation_that_a_run_cannot_make_is_refused_at_once(tmp_path: Path, config: RunConfig, says: str) -> None:
    (tmp_path / "config.json").write_bytes(orjson.dumps({"config": config_values(config)}))
    with pytest.raises(UserError, match=says):
        main([str(tmp_path), "evaluate"])
    assert not (tmp_path / REQUEST_FILE).exists()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such run"):
        steer(tmp_path, "pause")


async def test_the_conductor_hears_of_every_change_once(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conductor, events = FakeConductor(), EventLog(run_dir, "driver-1", "node-0")
    looks: list[object] = [
        None,
        None,
        lambda: steer(run_dir, "drain"),
        lambda: (run_dir / STEERING_FILE).write_text("{"),
        (run_dir / STEERING_FILE).unlink,
    ]

    async def look_again(_: float) -> None:
        if not looks:
            raise asyncio.CancelledError
        if callable(change := looks.pop(0)):
            change()

    monkeypatch.setattr(steering, "asyncio", SimpleNamespace(sleep=look_again))
    with pytest.raises(asyncio.CancelledError):
        await follow_steering(run_dir, Stand(LocalRemote(conductor)), OWN, events)
    assert [standing.flow for standing in conductor.told] == [Flow.DRAIN, Flow.RUN]
    lines = [orjson.loads(line) for line in (run_dir / "events" / "driver-1.jsonl").read_bytes().splitlines()]
    assert [line["kind"] for line in lines] == ["steering.refused"]
