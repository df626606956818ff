"""Whole episodes on a service's machine, each beside a real sandbox, in front of the gateway.

If these fail, a trajectory is not what was done and sampled there, or sandboxes outlive whoever asked for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from actors.agents.hermes import HERMES
from actors.agents.prompt import PromptTemplate
from actors.agents.settings import AgentKind, AgentSettings, AgentSpec, ToolsetKind
from actors.environment.episode import EpisodeInputs, run_hosted_episode
from actors.environment.messages import EpisodeOutcome
from actors.environment.service import EnvironmentServiceSettings
from actors.rollout.settings import EpisodeSettings
from actors.workers.environment_runner import EnvironmentRunner
from actors.workers.provider_spec import ProviderSpec
from learner.data.sequences import join_sequences
from protocol.trajectory import EpisodeStatus
from sandbox.errors import TaskFault
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.providers.settings import ENVIRONMENT
from sandbox.tasks.task import Task
from tests.support.actors.environments import serve_environment
from tests.support.actors.episodes import episode_context
from tests.support.actors.observers import FakeReward
from tests.support.actors.worker_specs import worker_spec
from tests.support.fakes.fake_policy import FakeTokenizer, ScriptedEngine, ids_of
from tests.support.network.breakable_forwarder import BreakableForwarder

pytestmark = [pytest.mark.docker, pytest.mark.slow]

EPISODE = EpisodeSettings(
    max_turns=8,
    max_malformed=2,
    max_new_tokens=400,
    context_tokens=8000,
    temperature=0.7,
    nominal_tokens_per_s=50.0,
    time_limit_s=120.0,
)
SETA = AgentSpec(AgentSettings(toolset=ToolsetKind.SETA), PromptTemplate("Use the shell."))
TASK = Task(
    id="answer",
    instruction="write 42 to /app/answer",
    run_tests="""#!/bin/sh
echo "==== short test summary info ===="
if test "$(cat /app/answer)" = 42; then echo "PASSED test_answer"; else echo "FAILED test_answer"; fi
""",
    expected_tests=("test_answer",),
)


def call(name: str, **arguments: str) -> str:
    fields = ", ".join(f'"{key}": "{value}"' for key, value in arguments.items())
    return f'<tool_call>{{"name": "{name}", "arguments": {{{fields}}}}}</tool_call>\x01'


@asynccontextmanager
async def service(
    host: SandboxHost, settings: EnvironmentServiceSettings | None = None
) -> AsyncGenerator[tuple[str, SandboxPool]]:
    pool_settings = PoolSettings(name=f"test-environment-{os.getpid()}", run_id="test", capacity=4)
    async with SandboxPool(pool_settings, host) as pool:

        async def played(part: EpisodeInputs) -> EpisodeOutcome:
            return await run_hosted_episode(part, pool)

        async with serve_environment(played, settings) as (url, _):
            yield url, pool


@asynccontextmanager
async def environments(url: str, engine: ScriptedEngine, agent: AgentSpec = SETA) -> AsyncGenerator[EnvironmentRunner]:
    provider = ProviderSpec(ENVIRONMENT, (url,))
    spec = replace(
        worker_spec(agent=agent, acquire_timeout_s=120.0, cleanup_timeout_s=20.0),
        command_timeout_s=20.0,
        grade_timeout_s=60.0,
    )
    async with EnvironmentRunner(spec, provider, FakeTokenizer(), engine.generate, HERMES) as opened:
        yield opened


async def test_a_service_runs_and_grades_an_episode_and_the_trajectory_holds_the_sampled_tokens(
    docker_engine: SandboxHost,
) -> None:
    texts = [
        call("shell_exec", id="a", command="cd /app; echo 42 > answer"),
        call("shell_exec", id="a", command="cat answer; pwd"),
        "done\x01",
    ]
    engine, rewarding = ScriptedEngine([*texts]), FakeReward()
    async with service(docker_engine) as (url, pool), environments(url, engine) as opened:
        trajectory = await opened.run_episode(episode_context(EPISODE, TASK, reward=rewarding))
        assert pool.statistics().live == 0
    assert (trajectory.status, trajectory.passed) == (EpisodeStatus.COMPLETED, True)
    (segment,) = trajectory.segments
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of("".join(texts))
    assert "<tool>42\n/app\n\x01" in FakeTokenizer().decode(segment.token_ids.tolist(), skip_special_tokens=False)
    assert len(join_sequences(trajectory.segments)) == 1
    (played,) = rewarding.received_results
    assert [each.exit_code for turn in played.turns for each in turn.calls] == [0, 0]


async def test_an_agent_with_a_terminal_works_on_the_service_too(docker_engine: SandboxHost) -> None:
    keystrokes = '{"keystrokes": "echo 42 > /app/answer\\n", "done": false}'
    agent = AgentSpec(AgentSettings(kind=AgentKind.KEYSTROKES), PromptTemplate("Type."))
    engine = ScriptedEngine([f"{keystrokes}\x01"] * 8)
    async with service(docker_engine) as (url, _), environments(url, engine, agent) as opened:
        trajectory = await opened.run_episode(episode_context(EPISODE, TASK))
    assert trajectory.sampled_tokens > 0


async def test_a_setup_failure_on_the_service_is_reported_as_a_task_fault(docker_engine: SandboxHost) -> None:
    async with service(docker_engine) as (url, pool), environments(url, ScriptedEngine([])) as opened:
        with pytest.raises(TaskFault, match="setup exited with 7"):
            await opened.run_episode(episode_context(EPISODE, replace(TASK, setup="exit 7")))
        assert pool.statistics().live == 0


@pytest.mark.parametrize("died", [False, True])
async def test_no_sandbox_outlives_the_client_that_requested_it(docker_engine: SandboxHost, died: bool) -> None:
    """Who gives it up says so; who died asks no more."""
    engine = ScriptedEngine([call("shell_exec", id="a", command="true"), "never\x01"])
    settings = EnvironmentServiceSettings(ttl_s=0.5, expiry_check_s=0.1)
    async with (
        service(docker_engine, settings) as (url, pool),
        BreakableForwarder(url) as network,
        environments(network.url, engine) as opened,
    ):
        requested = asyncio.Event()
        engine.on_request = lambda: (
            (requested.set(), engine.may_reply.clear()) if len(engine.received_requests) == 2 else None
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(opened.run_episode(episode_context(EPISODE, TASK)))
            await requested.wait()
            assert pool.statistics().live == 1
            if died:
                network.cut()
            running.cancel()
        async with asyncio.timeout(60):
            while pool.statistics().live:  # noqa: ASYNC110  the pool tells nobody
                await asyncio.sleep(0.05)
        engine.may_reply.set()
