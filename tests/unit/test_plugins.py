"""The package of docs/plugins.md, laid out as pip lays one out.

If these fail, whoever follows that page has an agent, a format or a provider that longshore does not find, or one of
another shape breaks a run that has begun.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.agents.agent import ActionOutcome, AgentToolCall, MalformedAction
from actors.agents.registry import make_agent
from actors.rewards.episode_result import EpisodeResult, ModelTurn, ToolCallRecord
from actors.rewards.registry import find_outcome_reward
from actors.rollout.episode import run_agent_episode
from actors.rollout.settings import EpisodeSettings
from actors.rollout.terminal import EpisodeGrade, ToolCallResult
from actors.tokens.chat_format import ChatFormat
from actors.workers.sandbox_source import open_sandbox_source
from launch.actor_group.specs.sandbox_providers import make_provider_spec
from launch.config import ConfigError, load_recipe
from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin, plugin_names
from protocol.trajectory import EpisodeStatus
from sandbox.pool.sandbox_pool import PoolSettings
from sandbox.providers.plugins import open_plugin_provider
from sandbox.tasks.dataset_catalog import read_catalog
from sandbox.tasks.formats.registry import find_format, load_tasks
from sandbox.tasks.task import Task
from tests.support.actors.episodes import episode_context
from tests.support.fakes.fake_policy import FakeTokenizer, ScriptedEngine
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.http_servers import pool_server
from tests.support.plugin_package import install_metadata, write_plugin_package
from tests.support.tasks.task_files import write_tasks

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
MINE = ["warm_start.enabled=false", "agent.kind=prompt_lines"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages: the page's."""
    folder, before = tmp_path / "site", set(sys.modules)
    write_plugin_package(folder)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(folder)):
            del sys.modules[name]


class EchoTerminal:
    async def call(self, name: str, arguments: dict[str, object], on_output: object) -> ToolCallResult:
        return ToolCallResult(f"{name} {arguments['command']}", "", 0, 1.0)

    async def grade(self, last_reply: str) -> EpisodeGrade:
        return EpisodeGrade((), 1.0, True, 1.0)


@pytest.mark.usefixtures("site")
async def test_an_agent_plugin_is_selected_by_name_and_runs_an_episode() -> None:
    config = load_recipe("demo", [*MINE, "agent.options={most=2}", "agent.system_prompt=mine"])
    agent = make_agent(config.agent.make_spec())
    engine, task = ScriptedEngine(["so:\n$ ls\n$ pwd\x01", "$ 1\n$ 2\n$ 3\x01", "done\x01"]), Task("t", "List.")
    settings = EpisodeSettings(
        max_turns=4,
        max_malformed=2,
        max_new_tokens=100,
        context_tokens=600,
        temperature=1.0,
        nominal_tokens_per_s=50.0,
        time_limit_s=60.0,
    )
    chat = ChatFormat(FakeTokenizer())
    trajectory = await run_agent_episode(episode_context(settings, task), agent, chat, engine.generate, EchoTerminal())
    text = "".join(map(chr, trajectory.segments[0].token_ids))
    assert trajectory.status is EpisodeStatus.COMPLETED
    assert text.startswith("<system>mine\x01\n<user>List.\x01\n")
    assert "<user>shell_exec ls\nshell_exec pwd\x01" in text
    assert "<user>Error: write at most 2 lines that begin with $\x01" in text


@pytest.mark.usefixtures("site")
def test_the_documented_agent_parses_replies_as_documented() -> None:
    agent = make_agent(load_recipe("demo", MINE).agent.make_spec())
    assert list(agent.parse_reply("$ ls").actions) == [AgentToolCall("shell_exec", {"command": "ls"})]
    assert isinstance(agent.parse_reply("$ a\n" * 6).actions[0], MalformedAction)
    assert agent.format_outcomes(
        [ActionOutcome(AgentToolCall("shell_exec", {}), "a"), ActionOutcome(MalformedAction("x"), "b")]
    ) == [{"role": "user", "content": "a\nb"}]


def test_a_task_format_plugin_reads_writes_and_converts(site: Path, tmp_path: Path) -> None:
    task = Task("greet", "Greet.\n", run_tests="#!/bin/sh\ntrue\n", expected_tests=("a",), memory_mb=512)
    write_tasks([task], "one_file", tmp_path / "own")
    assert {path.name for path in (tmp_path / "own" / "greet").iterdir()} >= {"TASK.txt", "check.sh"}
    assert load_tasks(tmp_path / "own", "one_file").tasks == (task,)
    arguments = ["convert", str(tmp_path / "own"), "--format", "one_file", "--to", "terminal_bench", "--output"]
    command = [sys.executable, "-m", "sandbox.tasks", *arguments, str(tmp_path / "other")]
    paths = os.pathsep.join([str(site), str(PAGE.parents[1])])
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert load_tasks(tmp_path / "other").tasks[0].instruction == "Greet.\n"
    (tmp_path / "datasets.toml").write_text('[mine]\npath = "own"\nformat = "one_file"\n')
    assert read_catalog(tmp_path / "datasets.toml")["mine"].format == "one_file"
    (tmp_path / "datasets.toml").write_text('[mine]\npath = "own"\nformat = "one_fil"\n')
    with pytest.raises(UserError, match="did you mean 'one_file'"):
        read_catalog(tmp_path / "datasets.toml")


@pytest.mark.usefixtures("site")
async def test_a_provider_plugin_provides_sandboxes(tmp_path: Path) -> None:
    async with pool_server(FakeProvider(), tmp_path) as (url, _):
        assert await importlib.import_module("use").greeted(url) == "echo hello\n"
        sandbox_settings = load_recipe("demo", ["sandbox.provider=lab", f'sandbox.options={{url="{url}"}}']).sandbox
        provider_spec = make_provider_spec(sandbox_settings, {})
        async with open_sandbox_source(
            PoolSettings("unused", "r", 1), provider_spec, episodes=1, acquire_s=60.0
        ) as sandboxes:
            sandbox = await sandboxes.open(Task("greet", ""))
            assert (await sandbox.grade()).all_passed
            await sandbox.close()


def test_an_unknown_plugin_name_is_refused_with_the_available_ones(site: Path) -> None:
    assert plugin_names(PluginGroup.AGENTS) == ["prompt_lines"]
    with pytest.raises(UserError, match="did you mean 'prompt_lines'"):
        load_plugin(PluginGroup.AGENTS, "prompt_line")
    with pytest.raises(ConfigError, match=r"choose from hermes, .*, prompt_lines; did you mean 'prompt_lines'"):
        load_recipe("demo", ["agent.kind=prompt_line"])
    install_metadata(site, "another", {"longshore.agents": {"prompt_lines": "longshore_prompt.agent:make"}})
    with pytest.raises(UserError, match="by another and longshore-prompt: uninstall all but one"):
        load_plugin(PluginGroup.AGENTS, "prompt_lines")


def test_an_invalid_plugin_is_refused_and_named(site: Path) -> None:
    """Before a run has begun: its preflight makes the agent."""
    (site / "broken.py").write_text("raise ZeroDivisionError('at import')")
    (site / "odd.py").write_text("def nothing(_):\n    return 7\nseven = 7\n")
    points = {"broken": "broken:x", "gone": "odd:gone", "nothing": "odd:nothing", "seven": "odd:seven"}
    install_metadata(site, "odd", {str(group): points for group in PluginGroup})
    for name, why in (
        ("broken", r"broken:x of odd \(ZeroDivisionError: at import\)"),
        ("gone", r"odd:gone of odd \(AttributeError"),
        ("nothing", "is not an agent"),
        ("seven", "is not an agent"),
    ):
        settings = load_recipe("demo", [*MINE[:1], f"agent.kind={name}"]).agent.make_spec()
        with pytest.raises(UserError, match=why) as caught:
            make_agent(settings)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="task format 'seven' is invalid"):
        find_format("seven")


@pytest.mark.parametrize("name", ["nothing", "seven"])
async def test_an_invalid_provider_plugin_is_refused_and_named(site: Path, name: str) -> None:
    (site / "odd.py").write_text("def nothing(_):\n    return 7\nseven = 7\n")
    install_metadata(site, "odd", {PluginGroup.SANDBOX_PROVIDERS: {name: f"odd:{name}"}})
    with pytest.raises(UserError, match=f"sandbox provider '{name}' is invalid"):
        async with open_plugin_provider(name, {}):
            raise AssertionError


@pytest.mark.usefixtures("site")
def test_a_reward_plugin_is_used_for_training() -> None:
    load_recipe("demo", ["rollout.reward=brief"])
    turn = ModelTurn("I look.", (ToolCallRecord("shell_exec", "ls"), ToolCallRecord("shell_exec", "cat a")))
    reward = find_outcome_reward("brief").formula(
        EpisodeResult("do", EpisodeStatus.COMPLETED, (), 1.0, True, 1.0, (turn,))
    )
    assert (reward.total, reward.parts) == (0.98, {"all_passed": 1.0, "calls": 2.0})
    with pytest.raises(ConfigError, match=r"rollout\.reward = 'brieff' is none of .*did you mean 'brief'"):
        load_recipe("demo", ["rollout.reward=brieff"])


def test_an_invalid_reward_plugin_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "longshore_number.py").write_text("REWARD = 3\n")
    install_metadata(tmp_path, "longshore_number", {"longshore.rewards": {"three": "longshore_number:REWARD"}})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="'three' is not a reward"):
        load_recipe("demo", ["rollout.reward=three", "reward.process=art", "reward.process_target=turns"])
