"""A real agent process in a real sandbox without a network, in front of the gateway.

If these fail, a harness cannot reach the policy, reaches more than that, or its trajectory is not what it did.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.agents.hermes import HERMES
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.settings import EpisodeSettings, HarnessSettings
from actors.workers.harness_runner import HarnessRunner
from learner.data.sequences import join_sequences
from protocol.trajectory import EpisodeStatus, Trajectory
from sandbox.host_record import SandboxHost
from sandbox.providers.interface import open_sandbox
from sandbox.tasks.task import Task, TaskStep
from tests.support.actors.episodes import episode_context, terminal_limits
from tests.support.fakes.fake_policy import END, FakeTokenizer, ScriptedEngine
from tests.support.sandbox.bash_agent import AGENT
from tests.support.sandbox.provider_kinds import open_provider

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SETTINGS = EpisodeSettings(
    max_turns=8,
    max_malformed=2,
    max_new_tokens=400,
    context_tokens=8000,
    temperature=0.7,
    nominal_tokens_per_s=50.0,
    time_limit_s=120.0,
)
TASK = Task(
    id="answer",
    instruction="it's 42: write it to /app/answer",
    workdir="/app",
    run_tests="""#!/bin/sh
echo "==== short test summary info ===="
if test "$(cat /app/answer)" = 42; then echo "PASSED test_answer"; else echo "FAILED test_answer"; fi
if grep -q ":0C39 00000000:0000 0A" /proc/net/tcp; then echo "FAILED test_shut"; else echo "PASSED test_shut"; fi
""",
    expected_tests=("test_answer", "test_shut"),
    files={"/opt/agent.sh": AGENT.encode()},
    test_timeout_s=60.0,
)


def call(command: str) -> str:
    return f'<tool_call>{{"name": "shell", "arguments": {{"command": "{command}"}}}}</tool_call>\x01'


async def run(
    host: SandboxHost,
    engine: ScriptedEngine,
    command: str,
    settings: EpisodeSettings = SETTINGS,
    task: Task = TASK,
    kind: str = "local",
) -> Trajectory:
    async with (
        open_provider(host, kind) as provider,
        HarnessRunner(HarnessSettings(harness=command), FakeTokenizer(), engine.generate, HERMES) as harnesses,
        open_sandbox(provider, task, 600.0) as sandbox,
    ):
        terminal = SandboxTerminal(sandbox, task, terminal_limits(command_s=60.0, grade_s=60.0))
        await terminal.begin()
        return await harnesses.run_episode(episode_context(settings, task), terminal)


@pytest.mark.parametrize("kind", ["local", "router", "daytona"])
async def test_a_harness_in_a_sandbox_without_a_network_yields_a_trajectory_of_its_sampled_tokens(
    docker_engine: SandboxHost, kind: str
) -> None:
    texts = [
        call("echo 42 > /app/answer"),
        call("cat /app/answer; ls /sys/class/net; grep -c ':0C39 00000000:0000 0A' /proc/net/tcp | sed s/^0$/shut/"),
        "it is 42\x01",
    ]
    engine = ScriptedEngine([*texts])
    trajectory = await run(docker_engine, engine, "bash /opt/agent.sh", kind=kind)
    assert {test.name: test.passed for test in trajectory.tests} == {"test_answer": True, "test_shut": True}
    assert (trajectory.status, trajectory.reward.total) == (EpisodeStatus.COMPLETED, 1.0)
    (segment,) = trajectory.segments
    sampled = [END if char == "\x01" else ord(char) for char in "".join(texts)]
    assert segment.token_ids[segment.loss_mask == 1].tolist() == sampled
    text = FakeTokenizer().decode(segment.token_ids.tolist(), skip_special_tokens=False)
    assert f"<user>{TASK.instruction}\x01" in text
    assert "<tool>42\nlo\n" in text, "the sandbox has a network beside its own loopback"
    assert "shut\x01" not in text, "or that its door is shut while its tests run would show nothing"
    assert len(join_sequences(trajectory.segments)) == 1


@pytest.mark.parametrize("kind", ["local", "router"])
async def test_a_harness_begins_anew_in_each_step(docker_engine: SandboxHost, kind: str) -> None:
    tests = """#!/bin/sh
echo "==== short test summary info ===="
if test -e /app/{name}; then echo "PASSED test_{name}"; else echo "FAILED test_{name}"; fi
"""
    steps = tuple(
        TaskStep(name, f"make {name}", run_tests=tests.format(name=name), expected_tests=(f"test_{name}",))
        for name in ("one", "two")
    )
    engine = ScriptedEngine([call("touch /app/one"), "one\x01", call("touch /app/two"), "two\x01"])
    task = replace(TASK, steps=steps)
    trajectory = await run(docker_engine, engine, "bash /opt/agent.sh", task=task, kind=kind)
    assert {test.name: test.passed for test in trajectory.tests} == {"one: test_one": True, "two: test_two": True}
    first, second = (
        FakeTokenizer().decode(segment.token_ids.tolist(), skip_special_tokens=False) for segment in trajectory.segments
    )
    assert "<user>make one\x01" in first
    assert second.startswith("two\x01\n<assistant>"), "it shares what comes before the second instruction"


@pytest.mark.parametrize("kind", ["local", "server", "daytona"])
async def test_a_harness_that_exceeds_its_time_is_stopped_and_graded(docker_engine: SandboxHost, kind: str) -> None:
    """Its first reply's tokens cost more than all of its time."""
    engine = ScriptedEngine([call("sleep 600")])
    settings = SETTINGS.model_copy(update={"nominal_tokens_per_s": 0.01})
    trajectory = await run(docker_engine, engine, "bash /opt/agent.sh", settings, kind=kind)
    assert trajectory.status is EpisodeStatus.TIME_LIMIT
    assert {test.name: test.passed for test in trajectory.tests} == {"test_answer": False, "test_shut": True}
    assert trajectory.sampled_tokens == len(engine.replies[0].token_ids)
