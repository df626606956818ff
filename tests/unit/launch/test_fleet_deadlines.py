"""If these fail, the conductor issues again what a worker is still sending, and the same work is done twice; or nobody
knows which process did not stop."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from actors.worker import TAKE_S
from launch import fleet
from launch.config import load_recipe
from launch.fleet import Fleet, ticket_deadline_s
from launch.prepare import Prepared
from launch.rundir import RunDirectory
from protocol.events import EventLog


@pytest.mark.parametrize("send_s", [1.0, 600.0, 5000.0])
def test_a_ticket_outlives_all_that_its_worker_may_take(send_s: float) -> None:
    config = load_recipe("demo", [f"rollout.send_deadline_s={send_s}"])
    assert ticket_deadline_s(config) > TAKE_S + config.rollout.episode_deadline_s + send_s


async def test_an_actor_that_does_not_stop_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_STOP_S", 0.01)
    with RunDirectory.create(tmp_path, "demo", "mine") as directory:
        prepared = Prepared(tmp_path, warm=True, tasks={}, training=(), held_out=())
        events = EventLog(directory.path, "driver", "node-0")
        made = Fleet(load_recipe("demo"), directory, prepared, [], events)
        await made._each_stop({"mine/1/worker-0-0": asyncio.sleep(60)})
        events.close()
    (said,) = (directory.path / "events" / "driver.jsonl").read_text().splitlines()
    assert json.loads(said)["why"] == "mine/1/worker-0-0 did not answer within 0.01 s"
