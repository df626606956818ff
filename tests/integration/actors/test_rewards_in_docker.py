"""What a reward is told of an episode in a real sandbox.  If this fails, rules fire on what did not happen there."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from actors.agents.hermes import HermesAgent
from actors.agents.prompt import PromptTemplate
from actors.rewards.composite import open_reward
from actors.rewards.settings import JudgeSettings, ProcessRewardKind, RewardSettings, RewardTarget
from actors.rollout.episode import AgentEpisode, EpisodeSettings
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.tokens.chat_format import ChatFormat
from protocol.trajectory import GroupId, RolloutRequest, TurnKind
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY
from tests.support.fake_judge import BAD, GOOD, fake_judge
from tests.support.fake_policy import FakeEngine, FakeTokenizer
from tests.support.observers import FakeObserver

pytestmark = pytest.mark.docker

SETTINGS = EpisodeSettings(6, 3, 400, 8000, 1.0, 60.0, 0.0, 50.0, 120.0)
TASK = Task(
    id="answer",
    instruction="put 42 into answer.py",
    files={"/app/answer.py": b"41\n"},
    run_tests="""#!/bin/sh
echo "==== short test summary info ===="
if test "$(cat /app/answer.py)" = 42; then echo "PASSED test_answer"; else echo "FAILED test_answer"; fi
echo "FAILED test_other"
""",
    expected_tests=("test_answer", "test_other"),
    weights={"test_answer": 3.0, "test_other": 1.0},
)


def call(command: str) -> str:
    return f'<tool_call>{{"name": "shell_exec", "arguments": {{"command": "{command}"}}}}</tool_call>\x01'


async def test_exit_codes_time_and_weights_of_a_real_sandbox_are_what_rewards_are_made_of(
    docker_engine: SandboxHost,
) -> None:
    texts = [
        call("sed -i s/41/42/ answer.py"),
        call("cat none.py"),
        call("sleep 60; cat answer.py"),
        "<tool_call>{\x01",
        "done\x01",
    ]
    settings = PoolSettings(pool=f"test-rewards-{os.getpid()}", run_id="test", capacity=1)
    async with fake_judge(GOOD, BAD) as judge, SandboxPool(settings, docker_engine) as pool:
        wanted = RewardSettings(
            outcome="weighted_tests",
            process=ProcessRewardKind.ART,
            process_into=RewardTarget.TOTAL,
            judge=JudgeSettings(url=judge.url, model="j", prompt="$step\n$result", concurrency=1),
        )
        async with open_reward(wanted) as rewards, pool.acquire(TASK, 600.0) as session:
            terminal, agent = (
                SandboxTerminal(session, TASK, 2.0, 60.0, 1000),
                HermesAgent(PromptTemplate("sys"), SHELL_ONLY, {}),
            )
            ticket, engine = RolloutRequest("run", GroupId(1), 0, 8, TASK.id, 11), FakeEngine([*texts])
            chat = ChatFormat(FakeTokenizer())
            trajectory = await AgentEpisode(
                ticket, TASK, agent, chat, engine.generate, terminal, replace(SETTINGS, reward=rewards), FakeObserver()
            ).run()
        asked = [each["messages"][0]["content"] for each in judge.asked]
    parts = trajectory.reward.parts
    assert (parts["score"], parts["pass_ratio"], parts["all_passed"]) == (0.75, 0.5, 0.0)
    rules = {name: value for name, value in parts.items() if name.startswith("process_")}
    assert rules == pytest.approx(
        {
            "process_valid_command": 0.03,
            "process_command_succeeds": 0.02,
            "process_code_modified": 0.03,
            "process_timeout": -0.02,
            "process_invalid_format": -0.05,
        }
    )
    assert trajectory.reward.total == pytest.approx(0.75 + parts["process"]) == pytest.approx(0.75 + 0.01)
    own = [turn.reward for turn in trajectory.segments[0].turns if turn.kind is TurnKind.MODEL]
    assert own == [1.0, -1.0, 1.0, -1.0, 1.0]
    assert "No such file" in asked[1]
