"""Each agent, with a policy that knows what to do, in a real sandbox.

If these fail, an agent's calls do not reach its tools, or what it has done is not what is graded.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from actors.agents.agent import Agent
from actors.agents.registry import make_agent
from actors.agents.settings import AgentKind, ToolsetKind
from actors.rollout.episode import run_agent_episode
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.settings import EpisodeSettings
from actors.tokens.chat_format import ChatFormat
from actors.workers.provider_spec import ProviderSpec
from actors.workers.sandbox_source import open_sandbox_source
from launch.config.tables import AgentTable
from protocol.trajectory import EpisodeStatus, Trajectory
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.providers.interface import LocalProvider, LocalSandbox, Sandbox, open_sandbox
from sandbox.tasks.task import Task
from tests.support.actors.episodes import episode_context, terminal_limits
from tests.support.fakes.fake_policy import FakeTokenizer, ScriptedEngine
from tests.support.network.http_servers import pool_server

pytestmark = [pytest.mark.first_case, pytest.mark.docker]

POOL = PoolSettings(name=f"test-agents-{os.getpid()}", run_id="test", capacity=1)
SETTINGS = EpisodeSettings(
    max_turns=8,
    max_malformed=2,
    max_new_tokens=1000,
    context_tokens=20_000,
    temperature=1.0,
    nominal_tokens_per_s=1e9,
    time_limit_s=120.0,
)


def task(check: str) -> Task:
    return Task(
        id="t",
        instruction="Do it.",
        run_tests=f"""#!/bin/sh
echo "==== short test summary info ===="
if {check}; then echo "PASSED test_it"; else echo "FAILED test_it"; fi
""",
        expected_tests=("test_it",),
    )


WROTE = task('test "$(cat /app/made)" = 42')
SAID = task('test "$(cat /app/answer.txt)" = "It is 42."')
ANSWERED = task('grep -q 42 /app/answer.json && test "$(cat /app/made)" = 42')


def hermes(name: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def action(kind: str, **params: object) -> str:
    return f"```json\n{json.dumps({'action': {'type': kind, 'params': params}})}\n```"


def typed(*keys: str, complete: bool = False) -> str:
    commands = [{"keystrokes": each, "duration": 0.5} for each in keys]
    return json.dumps({"analysis": "", "plan": "", "commands": commands, "task_complete": complete})


EPISODES: dict[str, tuple[AgentTable, Task, list[str], str]] = {
    "hermes, shell": (AgentTable(), WROTE, [hermes("shell_exec", command="cd /app; echo 42 > made"), "done"], ""),
    "hermes, seta": (
        AgentTable(toolset=ToolsetKind.SETA),
        WROTE,
        [
            hermes("shell_exec", id="a", command="cat > made", block=False)
            + hermes("shell_write_to_process", id="a", command="42"),
            hermes("shell_kill_process", id="a") + hermes("shell_wait", id="a", wait_seconds=1),
            "done",
        ],
        "Session 'a' terminated.",
    ),
    "hermes, openclaw": (
        AgentTable(toolset=ToolsetKind.OPENCLAW, prompt="openclaw-1"),
        WROTE,
        [
            hermes("shell_kill_process", id="a"),
            hermes("shell_write_content_to_file", content="42", file_path="made"),
            "done",
        ],
        "Error: unknown tool 'shell_kill_process'. Available: shell_exec, shell_view,",
    ),
    "bash": (
        AgentTable(kind=AgentKind.BASH),
        WROTE,
        [
            "THOUGHT: look\n```bash\nls /nowhere\n```",
            "```bash\necho 42 > made\ncat made\n```",
            "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```",
        ],
        "<returncode>0</returncode>\n<output>\n42\n</output>",
    ),
    "json": (
        AgentTable(kind=AgentKind.JSON),
        ANSWERED,
        [action("shell_exec", command="echo 42 > made"), action("stop", final={"answers": {"answer1": "42"}})],
        "(no output)",
    ),
    "keystrokes": (
        AgentTable(kind=AgentKind.KEYSTROKES),
        WROTE,
        [typed("cat > made\n", "42\n", "C-d"), typed("cat made\n"), typed(complete=True)],
        "cat made\n42",
    ),
    "code_interpreter": (
        AgentTable(kind=AgentKind.CODE_INTERPRETER),
        SAID,
        [hermes("code_interpreter", code="print(6 * 7)"), "It is 42."],
        "<tool>42",
    ),
}


@pytest.mark.parametrize(("section", "task", "texts", "reads"), EPISODES.values(), ids=EPISODES)
async def test_an_agent_with_a_scripted_policy_solves_its_task(
    docker_engine: SandboxHost, section: AgentTable, task: Task, texts: list[str], reads: str
) -> None:
    agent = make_agent(section.make_spec())
    async with SandboxPool(POOL, docker_engine) as pool, open_sandbox(LocalProvider(pool), task, 600.0) as sandbox:
        await does_it(agent, task, texts, reads, sandbox)


ELSEWHERE = {name: each for name, each in EPISODES.items() if name != "keystrokes"}


@pytest.mark.parametrize(("section", "task", "texts", "reads"), ELSEWHERE.values(), ids=ELSEWHERE)
async def test_an_agent_solves_its_task_in_a_pool_server_sandbox_and_is_graded_there(
    docker_engine: SandboxHost, tmp_path: Path, section: AgentTable, task: Task, texts: list[str], reads: str
) -> None:
    agent = make_agent(section.make_spec())
    async with (
        SandboxPool(POOL, docker_engine) as pool,
        pool_server(LocalProvider(pool), tmp_path) as (url, _),
        open_sandbox_source(POOL, ProviderSpec("pool", (url,)), episodes=1, acquire_s=120.0) as sandboxes,
        open_sandbox(sandboxes, task, 600.0) as sandbox,
    ):
        assert not isinstance(sandbox, LocalSandbox)
        await does_it(agent, task, texts, reads, sandbox)


async def does_it(agent: Agent, task: Task, texts: list[str], reads: str, sandbox: Sandbox) -> None:
    limits = terminal_limits(command_s=20.0, grade_s=60.0, observation_chars=4000)
    terminal = SandboxTerminal(sandbox, task, limits, tools=agent.tools)
    engine = ScriptedEngine([f"{text}\x01" for text in texts])
    chat = ChatFormat(FakeTokenizer(), tools=[tool.schema for tool in agent.offered_tools.values()] or None)
    trajectory = await run_agent_episode(episode_context(SETTINGS, task), agent, chat, engine.generate, terminal)
    assert (trajectory.status, trajectory.reward.total) == (EpisodeStatus.COMPLETED, 1.0), text_of(trajectory)
    assert not engine.texts
    assert reads in text_of(trajectory)


def text_of(trajectory: Trajectory) -> str:
    return "".join(map(chr, trajectory.segments[0].token_ids))
