"""A reward's view of an episode in a real sandbox. If this fails, rules fire on what did not happen there."""

from __future__ import annotations

import os

import pytest

from actors.agents.hermes import HermesAgent
from actors.agents.prompt import PromptTemplate
from actors.rewards.composite import open_reward
from actors.rewards.settings import (
    JudgeSettings,
    JudgeSpec,
    ProcessRewardKind,
    RewardSettings,
    RewardSpec,
    RewardTarget,
)
from actors.rollout.episode import run_agent_episode
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.settings import EpisodeSettings
from actors.tokens.chat_format import ChatFormat
from protocol.trajectory import TurnKind
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.providers.interface import LocalProvider, open_sandbox
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY
from tests.support.actors.episodes import episode_context, terminal_limits
from tests.support.fakes.fake_judge import BAD, GOOD, serve_fake_judge
from tests.support.fakes.fake_policy import FakeTokenizer, ScriptedEngine

pytestmark = pytest.mark.docker

SETTINGS = EpisodeSettings(
    max_turns=6,
    max_malformed=3,
    max_new_tokens=400,
    context_tokens=8000,
    temperature=1.0,
    nominal_tokens_per_s=50.0,
    time_limit_s=120.0,
)
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


async def test_rewards_follow_from_exit_codes_timeouts_and_test_weights_of_a_real_sandbox(
    docker_engine: SandboxHost,
) -> None:
    texts = [
        call("sed -i s/41/42/ answer.py"),
        call("cat none.py"),
        call("sleep 60; cat answer.py"),
        "<tool_call>{\x01",
        "done\x01",
    ]
    settings = PoolSettings(name=f"test-rewards-{os.getpid()}", run_id="test", capacity=1)
    async with serve_fake_judge(GOOD, BAD) as judge, SandboxPool(settings, docker_engine) as pool:
        asked_judge = JudgeSettings(url=judge.url, model="j", votes=1, concurrency=1)
        wanted = RewardSpec(
            "weighted_tests",
            RewardSettings(process=ProcessRewardKind.ART, process_target=RewardTarget.TOTAL),
            JudgeSpec(asked_judge, "$step\n$result"),
        )
        async with open_reward(wanted) as rewards, open_sandbox(LocalProvider(pool), TASK, 600.0) as sandbox:
            terminal, agent = (
                SandboxTerminal(sandbox, TASK, terminal_limits(command_s=2.0, grade_s=60.0)),
                HermesAgent(PromptTemplate("sys"), SHELL_ONLY, {}),
            )
            engine = ScriptedEngine([*texts])
            chat = ChatFormat(FakeTokenizer())
            context = episode_context(SETTINGS, TASK, reward=rewards)
            trajectory = await run_agent_episode(context, agent, chat, engine.generate, terminal)
        prompts = [each["messages"][0]["content"] for each in judge.received_requests]
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
    assert "No such file" in prompts[1]
