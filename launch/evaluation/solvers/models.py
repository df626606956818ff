"""A model by its agent: served here from a folder, or at a URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from actors.agents.agent import Agent
from actors.engines.engine import SGLangEngine
from actors.engines.interface import Engine
from actors.engines.settings import EngineSpec
from actors.rewards.episode_result import ModelTurn
from actors.rollout.agent_loop import AgentLoop
from actors.rollout.chat_policy import ChatEndpoint, ChatEndpointSettings, ChatPolicy
from actors.rollout.observer import EpisodeObserver
from actors.rollout.policy import (
    EVALUATION_TEMPERATURE,
    EpisodeSampling,
    Policy,
    PolicyCompletion,
    TokenPolicy,
    make_sampling,
    open_prompt_context,
)
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.settings import EpisodeSettings
from actors.tokens import chat_format
from actors.tokens.chat_format import ChatFormat, ChatMessage
from actors.tokens.segment_tree import ObservationSource
from actors.workers.harness_runner import HarnessRunner
from actors.workers.settings import WorkerSpec
from launch.actor_group.actor_settings import engine_spec
from launch.config import RunConfig
from launch.data.preparation import require_model_files
from launch.evaluation.attempts import AttemptId, AttemptUsage
from launch.evaluation.evaluation_options import EvaluationOptions, read_key
from launch.evaluation.solvers.api_relay import ApiRelay, RelaySettings
from launch.evaluation.solvers.harnesses import BuildRequest, gateway_solver, relay_solver
from launch.evaluation.solvers.segments_json import segments_as_json
from launch.evaluation.solvers.solver import Solver, SolverRun
from launch.hosts.cluster_nodes import ClusterNode
from launch.run_records.run_directory import RunDirectory
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.trajectory import EpisodeStatus, GroupId, RolloutRequest, Segment
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from sandbox.tasks.task import Task

ReadSegments = Callable[[], Sequence[Segment]]
PURPOSE = "evaluate"


class RecordingPolicy:
    """A policy, and what was said with it."""

    def __init__(self, policy: Policy, opening: list[ChatMessage]) -> None:
        self._policy, self.messages = policy, [*opening]
        self.noted: list[ObservationSource | None] = []
        """Of each reply what came of it; None where nothing was told."""
        self._said = ""

    @property
    def remaining_tokens(self) -> int:
        return self._policy.remaining_tokens

    @property
    def reply_prefix(self) -> str:
        return self._policy.reply_prefix

    async def complete(self, turn: int, max_new_tokens: int) -> PolicyCompletion:
        said = await self._policy.complete(turn, max_new_tokens)
        self._said = said.text
        return said

    def commit_reply(self, *, malformed: bool) -> None:
        self._policy.commit_reply(malformed=malformed)
        self.messages.append({"role": "assistant", "content": self._policy.reply_prefix + self._said})
        self.noted.append(None)

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        self.messages += messages
        self.noted[-1] = source
        return self._policy.append_observation(messages, source)

    def truncate_text(self, text: str, tokens: int) -> str:
        return self._policy.truncate_text(text, tokens)


@dataclass(frozen=True, slots=True)
class ModelSolverRun:
    """One attempt of a model."""

    agent_loop: AgentLoop
    policy: RecordingPolicy
    segments: ReadSegments

    def run(self) -> Coroutine[None, None, EpisodeStatus]:
        return self.agent_loop.run()

    @property
    def turns(self) -> Sequence[ModelTurn]:
        return self.agent_loop.transcript.turns

    @property
    def final_answer(self) -> str:
        return self.agent_loop.transcript.last_content

    @property
    def effort(self) -> AttemptUsage:
        turns = self.turns
        return AttemptUsage(
            turns=len(turns),
            calls=sum(turn.tool_call_count for turn in turns),
            widest=max((turn.tool_call_count for turn in turns), default=0),
            malformed=sum(turn.malformed for turn in turns),
            prompt_tokens=self.agent_loop.prompt_tokens,
            completion_tokens=self.agent_loop.sampled_tokens,
        )

    def trajectory_json(self) -> dict[str, JsonValue]:
        return {
            "messages": cast("JsonValue", self.policy.messages),
            "observed": [
                {"tool": noted.tool, "exit_code": noted.exit_code, "ms": round(noted.ms, 1)} if noted else None
                for noted in self.policy.noted
            ],
            "segments": segments_as_json(self.segments()),
        }


def build_model_run(
    task: Task,
    agent: Agent,
    policy: Policy,
    terminal: SandboxTerminal,
    observer: EpisodeObserver,
    *,
    settings: EpisodeSettings,
    segments: ReadSegments = tuple,
) -> SolverRun:
    transcript = RecordingPolicy(policy, agent.opening_messages(task))
    return ModelSolverRun(AgentLoop(task, agent, transcript, terminal, settings, observer), transcript, segments)


def request_builder(asked: EvaluationOptions) -> BuildRequest:
    """An attempt's ticket; tasks are numbered as they come."""
    places: dict[str, int] = {}

    def ticket_of(attempt: AttemptId) -> RolloutRequest:
        return RolloutRequest(
            PURPOSE,
            GroupId(places.setdefault(attempt.task, len(places))),
            attempt.number,
            asked.attempts,
            attempt.task,
            attempt.sampling_seed(asked.seed),
            purpose=PURPOSE,
            greedy=asked.greedy,
        )

    return ticket_of


def build_engine_spec(asked: EvaluationOptions, config: RunConfig, directory: RunDirectory) -> EngineSpec:
    """Of a server of the folder's model.  Raises UserError for a folder that is no model's."""
    folder = require_model_files(Path(asked.model)).absolute()
    own = engine_spec(config, directory, folder, "engine-0", ClusterNode("node-0", "", "127.0.0.1"))
    return replace(own, lora=None, offloads_memory=False)


@asynccontextmanager
async def serve_model(spec: EngineSpec) -> AsyncGenerator[Engine]:
    """A server in this process's care, gone at the end.  Raises EngineStartError."""
    engine = SGLangEngine(spec)
    try:
        await engine.start(WeightManifest(WeightVersion(0), 0, NO_VERSION, spec.model_path, "", 0, 0))
        yield engine
    finally:
        await engine.stop()


async def load_chat_format(asked: EvaluationOptions, config: RunConfig, agent: Agent) -> ChatFormat:
    """How ``agent`` speaks with the folder's model.  Raises UserError where they do not go together."""

    def read() -> ChatFormat:
        folder = str(Path(asked.model).absolute())
        return chat_format.load_chat_format(
            folder, agent.offered_tools, thinking=config.agent.thinking.template_argument
        )

    return await asyncio.to_thread(read)


@asynccontextmanager
async def served_model_solver(
    engine: Engine, chat: ChatFormat, asked: EvaluationOptions, settings: WorkerSpec, agent: Agent
) -> AsyncGenerator[Solver]:
    """Who is served by ``engine``, which may serve others too."""
    episode, build_request = settings.episode, request_builder(asked)

    def build_sampling(attempt: AttemptId) -> EpisodeSampling:
        return make_sampling(
            episode,
            build_request(attempt),
            reply_timeout_s=settings.reply_timeout_s,
            restart_timeout_s=settings.restart_timeout_s,
            evaluation_temperature=asked.temperature or EVALUATION_TEMPERATURE,
        )

    def player(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver) -> SolverRun:
        context = open_prompt_context(episode, chat, agent.opening_messages(task))
        policy = TokenPolicy(chat, context, engine.generate, build_sampling(attempt))
        return build_model_run(task, agent, policy, terminal, observer, settings=episode, segments=context.segments)

    if not settings.harness.harness:
        yield player
    else:
        async with HarnessRunner(settings.harness, chat.tokenizer, engine.generate) as harnesses:
            yield gateway_solver(harnesses, episode, build_sampling)


async def fetch_first_model(asked: EvaluationOptions, config: RunConfig) -> str:
    """The first that the server at the URL lists.  Raises UserError where nobody is there, or none is listed."""
    async with ChatEndpoint(_endpoint_settings(asked, config)) as asking:
        known = await asking.list_models()
    if not known:
        raise UserError(f"{asked.model} does not say which models it has: name one, --model-name NAME")
    return known[0]


def _endpoint_settings(asked: EvaluationOptions, config: RunConfig) -> ChatEndpointSettings:
    return ChatEndpointSettings(
        url=asked.model.rstrip("/"),
        model=asked.model_name,
        key=read_key(asked.key_file),
        deadline_s=config.engine.request_timeout_s,
    )


@asynccontextmanager
async def remote_model_solver(
    asked: EvaluationOptions, config: RunConfig, settings: WorkerSpec, agent: Agent
) -> AsyncGenerator[Solver]:
    """A model at a URL.  Raises UserError where nobody is there, or not that model."""
    reaching, name = _endpoint_settings(asked, config), asked.model_name
    async with ChatEndpoint(reaching) as asking:
        known = await asking.list_models()
    if known and name not in known:
        raise UserError(
            f"{asked.model} has no model {name!r}: it has {', '.join(known[:10])}{did_you_mean(name, known)}: name the "
            "one that is meant, --model-name NAME, and for another one than the folder's --output FOLDER"
        )
    episode = settings.episode
    if settings.harness.harness:
        temperature = 0.0 if asked.greedy else asked.temperature
        told = RelaySettings(
            url=reaching.url,
            model=name,
            key=reaching.key,
            temperature=temperature,
            max_replies=episode.max_turns,
            deadline_s=reaching.deadline_s,
        )
        async with ApiRelay(told) as relay:
            yield relay_solver(relay, settings.harness, episode, request_builder(asked))
        return
    tools = [tool.schema for tool in agent.offered_tools.values()]
    thinking = config.agent.thinking.template_argument
    async with ChatEndpoint(replace(reaching, thinking=thinking)) as endpoint:

        def player(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver) -> SolverRun:
            policy = ChatPolicy(
                endpoint,
                agent.opening_messages(task),
                tools=tools,
                context_tokens=episode.context_tokens,
                temperature=0.0 if asked.greedy else asked.temperature,
                seed=attempt.sampling_seed(asked.seed),
            )
            return build_model_run(task, agent, policy, terminal, observer, settings=episode)

        yield player
