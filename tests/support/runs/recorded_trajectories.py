"""Recorded trajectories of a run, made without a model by a scripted engine and a fake terminal."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from actors.agents.registry import make_agent
from actors.engines.messages import GenerateReply, GenerateRequest
from actors.rollout.episode import run_agent_episode
from actors.rollout.settings import EpisodeSettings
from actors.rollout.terminal import EpisodeGrade, ToolCallResult
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_template import Tokenizer
from launch.config import RunConfig, resolve
from launch.data.demo.tokenizer import train_tokenizer
from launch.run_records.run_directory import write_json
from launch.run_records.stored_config import config_tables
from protocol.codec import inspect_blob, pack_trajectory
from protocol.run_directory.trajectory_export import TrajectoryExporter
from protocol.trajectory import GroupId, RolloutRequest, TestResult, Trajectory
from sandbox.tasks.task import Task
from tests.support.actors.episodes import episode_context
from tests.support.fakes.fake_policy import make_reply

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(__file__).parents[1] / "templates"
LIMITS = EpisodeSettings(
    max_turns=6,
    max_malformed=2,
    max_new_tokens=4000,
    context_tokens=60_000,
    temperature=1.0,
    nominal_tokens_per_s=1e9,
    time_limit_s=60.0,
)


def tool_call(command: str) -> str:
    return f'<tool_call>\n{{"name": "shell_exec", "arguments": {{"command": "{command}"}}}}\n</tool_call>'


@cache
def tokenizer(template: str = "") -> Tokenizer:
    """The demo's, with its own chat template or one of :data:`TEMPLATES`."""
    made = copy.deepcopy(train_tokenizer(1024))
    if template:
        made.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
    return cast("Tokenizer", made)


@dataclass
class CountingTerminal:
    """Answers each command with its number, and fails what is called ``false``; passes where ``touch`` was called."""

    calls: list[str] = field(default_factory=list[str])

    async def call(self, name: str, arguments: dict[str, object], on_output: object) -> ToolCallResult:
        command = str(arguments.get("command", arguments))
        self.calls.append(command)
        text = f"{command}\nsays <|{len(self.calls)}|>\n"
        return ToolCallResult(text, text, int(command == "false"), 5.0)

    async def grade(self, last_reply: str) -> EpisodeGrade:
        passed = any(each.startswith("touch") for each in self.calls)
        return EpisodeGrade((TestResult("one", True), TestResult("two", passed)), (1 + passed) / 2, passed, 2.0)


@dataclass
class ScriptedModel:
    """Says each of its texts once, and the end of a turn behind it."""

    chat: ChatFormat
    texts: Sequence[str]
    request_count: int = 0

    async def generate(self, request: GenerateRequest) -> GenerateReply:
        text = self.texts[self.request_count]
        self.request_count += 1
        ids = [*self.chat.tokenizer.encode(text, add_special_tokens=False), self.chat.turn_end_id]
        return replace(make_reply(ids, 1), finish="stop")


def make_run_config(*overrides: str) -> RunConfig:
    return resolve({}, ["warm_start.enabled=false", *overrides])


def make_chat_format(run: RunConfig, template: str = "") -> ChatFormat:
    agent = make_agent(run.agent.make_spec())
    schemas = [tool.schema for tool in agent.offered_tools.values()]
    return ChatFormat(tokenizer(template), tools=schemas or None, thinking=run.agent.thinking.template_argument)


def record_trajectory(
    run: RunConfig,
    texts: Sequence[str],
    *,
    template: str = "",
    number: int = 0,
    task: str = "t",
    settings: EpisodeSettings = LIMITS,
    inspect_terminal: Callable[[CountingTerminal], None] = lambda terminal: None,
) -> Trajectory:
    """Run an episode whose model replies with these texts and return its trajectory."""
    chat, terminal = make_chat_format(run, template), CountingTerminal()
    context = episode_context(
        settings.model_copy(update={"history": run.agent.history}),
        Task(id=task, instruction=f"Do {task}."),
        request=RolloutRequest("run", GroupId(number), 0, 8, task, 11),
    )
    made = asyncio.run(
        run_agent_episode(
            context, make_agent(run.agent.make_spec()), chat, ScriptedModel(chat, texts).generate, terminal
        )
    )
    inspect_terminal(terminal)
    return made


def write_run(folder: Path, run: RunConfig, trajectories: Sequence[Trajectory], *, template: str = "") -> Path:
    """A run's directory, as far as readers of its trajectories look."""
    from launch.data.demo.hugging_face import save_tokenizer  # it loads torch, which a fake command would pay for

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", {"config": config_tables(run)})
    save_tokenizer(cast("PreTrainedTokenizerFast", tokenizer(template)), folder / "model")
    exporter = TrajectoryExporter(folder)
    for each in trajectories:
        blob = pack_trajectory(each)
        exporter.export_trajectory(inspect_blob(blob), blob)
    return folder
