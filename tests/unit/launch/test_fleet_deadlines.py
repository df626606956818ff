"""If this fails, the conductor issues again what a worker is still sending, and the same work is done twice."""

from __future__ import annotations

import pytest

from actors.worker import TAKE_S
from launch.config import load_recipe
from launch.fleet import ticket_deadline_s


@pytest.mark.parametrize("send_s", [1.0, 600.0, 5000.0])
def test_a_ticket_outlives_all_that_its_worker_may_take(send_s: float) -> None:
    config = load_recipe("demo", [f"rollout.send_deadline_s={send_s}"])
    assert ticket_deadline_s(config) > TAKE_S + config.rollout.episode_deadline_s + send_s
