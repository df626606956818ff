"""If these fail, an agent that others published cannot be trained in sandboxes of Daytona, which is a fake here
(:mod:`tests.support.sandbox.daytona_provider`)."""

from __future__ import annotations

import pytest

from protocol.trajectory import EpisodeStatus
from sandbox.host_record import SandboxHost
from tests.support.actors.published_harnesses import CALLS, FakeTaskPolicy, hello_task, play_harness

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_a_published_harness_solves_a_task_in_a_sandbox_of_daytona(docker_engine: SandboxHost) -> None:
    policy, task = FakeTaskPolicy(CALLS["camel"]), hello_task(docker_engine.base_image)
    trajectory = await play_harness(docker_engine, policy, "camel", task, kind="daytona")
    assert [test.name for test in trajectory.tests if not test.passed] == []
    assert (trajectory.status, trajectory.reward.total) == (EpisodeStatus.COMPLETED, 1.0)
    assert trajectory.sampled_tokens == sum(map(len, policy.replies))
    assert policy.observer.suspicious == []
