"""If these fail, a restart of dockerd under a run gives false rewards, or leaves containers behind."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors.agents.registry import make_agent
from actors.engines.messages import GenerateReply, GenerateRequest, OnPartialReply
from actors.rollout.settings import EpisodeSettings
from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_template import Tokenizer
from actors.workers.attempt_runner import AttemptRunner
from actors.workers.episode_runner import EpisodeRunner
from actors.workers.sandbox_source import LocalSandboxSource
from launch.config.tables import AgentTable
from protocol.activity import ActivityLog
from protocol.events import EventLog
from protocol.stream.sender import TrajectorySender
from protocol.trajectory import GroupId, InfraFailure, RolloutRequest, Trajectory
from sandbox.docker.engine import DockerEngine
from sandbox.docker.leaks import wait_for_leaks
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.stress.private_engine import PrivateEngine, why_unavailable
from sandbox.tasks.task import Task
from tests.support.actors.episodes import BINARY_REWARD
from tests.support.actors.worker_specs import worker_spec
from tests.support.fakes.fake_policy import FakeTokenizer, ids_of, make_reply

pytestmark = [pytest.mark.docker, pytest.mark.chaos, pytest.mark.timeout(1500)]

TURNS, EPISODES = 4, 4
OUTAGES = (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM)
AGENT = make_agent(AgentTable().make_spec())
TASK = Task(
    id="t",
    instruction="Write the numbers.",
    run_tests=f"""#!/bin/sh
echo "==== short test summary info ===="
if test "$(cat /app/made | wc -l)" = {TURNS}; then echo "PASSED test_it"; else echo "FAILED test_it"; fi
""",
    expected_tests=("test_it",),
)


async def write_a_number(request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
    """A policy that always solves the task, so that any other reward than 1 is false."""
    del watch
    turn = FakeTokenizer().decode(request.input_ids, skip_special_tokens=False).count("<assistant>") - 1
    call = {"name": "shell_exec", "arguments": {"command": f"cd /app; echo {turn} >> made; sleep 0.5"}}
    text = f"<tool_call>{json.dumps(call)}</tool_call>" if turn < TURNS else "done"
    return make_reply([*ids_of(text), 1], 1)


@dataclass
class Episodes:
    """Scheduler and buffer of one worker: a request that fails is made again, one that succeeds makes another."""

    finished: list[Trajectory] = field(default_factory=list[Trajectory])
    failures: list[tuple[InfraFailure, str]] = field(default_factory=list[tuple[InfraFailure, str]])
    requests: asyncio.Queue[RolloutRequest] = field(default_factory=asyncio.Queue[RolloutRequest])
    progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def call(self, method: Callable[..., Any], request: RolloutRequest, *told: Any) -> None:
        if method is RolloutScheduler.report_failed:
            failure, detail = told
            vanished = request.vanished_sandboxes + (failure is InfraFailure.SANDBOX_VANISHED)
            self.failures.append((failure, detail))
            self.requests.put_nowait(replace(request, attempt=request.attempt + 1, vanished_sandboxes=vanished))
        else:
            self.requests.put_nowait(
                replace(request, sample=request.sample + EPISODES, attempt=0, vanished_sandboxes=0)
            )

    async def send(self, trajectory: Trajectory, _: float) -> None:
        async with self.progress:
            self.finished.append(trajectory)
            self.progress.notify_all()

    async def wait_for(self, more: int) -> None:
        """Wait until so many more have finished."""
        target = len(self.finished) + more
        async with self.progress:
            await self.progress.wait_for(lambda: len(self.finished) >= target)


def attempt_runner(pool: SandboxPool, episodes: Episodes, run_dir: Path) -> AttemptRunner:
    """A worker's, as far as it is about sandboxes."""
    spec = worker_spec(run_dir, acquire_timeout_s=300.0, cleanup_timeout_s=60.0)
    spec = replace(spec, command_timeout_s=60.0, grade_timeout_s=60.0)
    settings = EpisodeSettings(
        max_turns=TURNS + 2,
        max_new_tokens=1000,
        context_tokens=20_000,
        nominal_tokens_per_s=1e9,
        time_limit_s=600.0,
    )
    activity = ActivityLog(run_dir, spec.name, "worker")
    runner = EpisodeRunner(
        spec=replace(spec, episode=settings),
        agent=AGENT,
        chat=ChatFormat(
            cast("Tokenizer", FakeTokenizer()), tools=[tool.schema for tool in AGENT.offered_tools.values()] or None
        ),
        generate=write_a_number,
        reward=BINARY_REWARD,
        sandboxes=LocalSandboxSource(pool),
        harnesses=None,
        environments=None,
        events=EventLog(run_dir, spec.name, spec.node),
        activity=activity,
    )
    return AttemptRunner(
        settings=spec.limits,
        tasks={TASK.id: TASK},
        run_episode=runner.run,
        sender=cast("TrajectorySender", SimpleNamespace(send=episodes.send)),
        scheduler=cast("Remote[RolloutScheduler]", episodes),
        activity=activity,
    )


@pytest.mark.parametrize("live_restore", [False, True], ids=["containers end", "containers survive"])
async def test_restarts_of_dockerd_cost_attempts_and_never_a_reward(
    docker_engine: SandboxHost, tmp_path: Path, live_restore: bool
) -> None:
    if why := why_unavailable(docker_engine.docker_url):
        pytest.skip(why)
    async with (
        PrivateEngine.running(docker_engine, live_restore=live_restore) as private,
        DockerEngine(private.host.docker_url) as engine,
    ):
        before, episodes = await engine.inventory(), Episodes()
        settings = PoolSettings("restarted", "test", EPISODES)
        async with SandboxPool(settings, private.host) as pool, asyncio.TaskGroup() as group:
            runner = attempt_runner(pool, episodes, tmp_path)

            async def work() -> None:
                while True:
                    await runner.run(await episodes.requests.get())

            for sample in range(EPISODES):
                episodes.requests.put_nowait(RolloutRequest("r", GroupId(1), sample, 8, TASK.id, 11))
            working = [group.create_task(work()) for _ in range(EPISODES)]
            for how in OUTAGES:
                await episodes.wait_for(EPISODES)
                await private.kill(how)
                await private.start()
            await episodes.wait_for(2 * EPISODES)
            for task in working:
                task.cancel()
        assert [each.reward.total for each in episodes.finished] == [1.0] * len(episodes.finished)
        kinds = {failure for failure, _ in episodes.failures}
        assert kinds <= {InfraFailure.SANDBOX_LOST, InfraFailure.SANDBOX_START}, episodes.failures
        assert kinds or live_restore, "no restart hit an episode"
        assert all("daemon" in detail for _, detail in episodes.failures), episodes.failures
        assert not await wait_for_leaks(engine, before), "something was left on the engine"
