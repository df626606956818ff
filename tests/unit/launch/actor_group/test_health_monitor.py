"""If this fails, a process that only a cut cable kept silent is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from actors.runtime.remote import Remote
from actors.workers.rollout_worker import RolloutWorker
from launch.actor_group import health_monitor
from launch.actor_group.health_monitor import HealthMonitor
from launch.hosts.cluster_nodes import ClusterNode
from launch.weight_sync.transport import WeightTransport
from protocol.events import EventLog


class Answered(Exception):
    """The actor was found alive."""


class Restarted(Exception):
    """The actor counted as hung."""


class Silent:
    """Fake: an actor that answers from its ``nth`` question on."""

    def __init__(self, name: str, nth: int) -> None:
        self.name, self.calls, self._nth = name, 0, nth

    async def pid(self) -> int:
        self.calls += 1
        if self.calls < self._nth:
            await asyncio.Event().wait()
        return 4242

    async def offer_stacks(self, path: Path, name: str) -> None:
        raise Answered


@pytest.mark.parametrize(("remote", "nth", "answers"), [(False, 2, False), (True, 2, True), (True, 3, False)])
async def test_one_lost_answer_does_not_restart_an_actor_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool, nth: int, answers: bool
) -> None:
    """Without this, the work of a worker is thrown away after a short network failure of its machine."""

    def restart(actor: Remote[object]) -> None:
        raise Restarted

    monkeypatch.setattr(health_monitor, "ACTOR_START_S", 0.01)
    monkeypatch.setattr(health_monitor, "restart_actor", restart)
    actor = cast("Remote[RolloutWorker]", Silent("mine/1/worker-1-0", nth))
    events = EventLog(tmp_path, "driver", "node-0")
    kept = HealthMonitor(
        events,
        0.01,
        WeightTransport(),
        node_of=lambda _: ClusterNode("node-1", "ray-1", "10.0.0.1", remote=remote),
        logs_of=lambda _: tmp_path,
    )
    with pytest.raises(Answered if answers else Restarted):
        await kept.watch_liveness(actor)
    events.close()
