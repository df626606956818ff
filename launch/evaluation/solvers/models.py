"""Solves tasks with a model and an agent: a model served here from a folder, or one at a URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from actors.agents.agent import Agent
from actors.agents.call_format import CallFormat
from actors.agents.registry import load_call_format, make_agent, require_readable_replies
from actors.chat_api.base_url import api_base_url
from actors.engines.engine import SGLangEngine
from actors.engines.interface import Engine
from actors.engines.sampling import EpisodeSampling
from actors.engines.settings import EngineSpec
from actors.rewards.episode_result import ModelTurn
from actors.rollout.agent_loop import AgentLoop
from actors.rollout.chat_policy import ChatEndpoint, ChatEndpointSettings, ChatPolicy
from actors.rollout.observer import EpisodeObserver
from actors.rollout.policy import (
    EVALUATION_TEMPERATURE,
    Policy,
    PolicyCompletion,
    TokenPolicy,
    make_sampling,
)
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.settings import EpisodeSettings
from actors.rollout.step_contexts import StepContexts
from actors.tokens import chat_format
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.segment_tree import ObservationSource
from actors.workers.harness_runner import HarnessRunner
from actors.workers.settings import WorkerSpec
from launch.actor_group.specs.engine_spec import engine_spec, require_positions
from launch.config import RunConfig
from launch.data.preparation import require_model_files
from launch.evaluation.evaluation_options import EvaluateArguments, read_key
from launch.evaluation.solvers.api_relay import ApiRelay, RelaySettings
from launch.evaluation.solvers.harnesses import BuildRequest, gateway_solver, relay_solver
from launch.evaluation.solvers.segments_json import segments_as_json
from launch.evaluation.solvers.solver import Solver, SolverRun
from launch.hosts.cluster_nodes import ClusterNode
from launch.run_records.run_directory import RunDirectory
from learner.models.qwen import read_qwen_config
from protocol.cli.suggestions import did_you_mean
from protocol.errors import InfraError, UserError
from protocol.evaluation import AttemptId, AttemptUsage
from protocol.events import JsonValue
from protocol.trajectory import EpisodeStatus, GroupId, RolloutRequest, Segment
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from sandbox.tasks.task import Task

ReadSegments = Callable[[], Sequence[Segment]]
PURPOSE = "evaluate"


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """The messages of an attempt."""

    messages: list[ChatMessage] = field(default_factory=list[ChatMessage])
    observations: list[ObservationSource | None] = field(default_factory=list["ObservationSource | None"])
    """Source of the observation after each reply; None without one."""


class RecordingPolicy:
    """Wraps a policy and records its conversation."""

    def __init__(self, policy: Policy, record: MessageRecord) -> None:
        self._policy, self._record, self._reply = policy, record, ""

    @property
    def remaining_tokens(self) -> int:
        return self._policy.remaining_tokens

    @property
    def reply_prefix(self) -> str:
        return self._policy.reply_prefix

    async def complete(self, turn: int, max_new_tokens: int) -> PolicyCompletion:
        completion = await self._policy.complete(turn, max_new_tokens)
        self._reply = completion.text
        return completion

    def commit_reply(self, *, malformed: bool) -> None:
        self._policy.commit_reply(malformed=malformed)
        self._record.messages.append({"role": "assistant", "content": self._policy.reply_prefix + self._reply})
        self._record.observations.append(None)

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        self._record.messages.extend(messages)
        self._record.observations[-1] = source
        return self._policy.append_observation(messages, source)

    def truncate_text(self, text: str, tokens: int) -> str:
        return self._policy.truncate_text(text, tokens)


@dataclass(frozen=True, slots=True)
class ModelSolverRun:
    """One attempt by a model."""

    agent_loop: AgentLoop
    record: MessageRecord
    segments: ReadSegments

    async def play(self, task: Task) -> EpisodeStatus:
        """Raises InfraError also if the first prompt left no room for a reply: no score can come of that."""
        status = await self.agent_loop.play(task)
        if not self.turns:
            tokens = self.agent_loop.settings.context_tokens
            raise InfraError(
                f"the first prompt leaves no room for a reply in agent.context_tokens = {tokens}: set it higher, "
                "--set agent.context_tokens=N"
            )
        return status

    @property
    def turns(self) -> Sequence[ModelTurn]:
        return self.agent_loop.transcript.turns

    @property
    def final_answer(self) -> str:
        return self.agent_loop.transcript.last_content

    @property
    def usage(self) -> AttemptUsage:
        turns = self.turns
        return AttemptUsage(
            turns=len(turns),
            tool_calls=sum(turn.tool_call_count for turn in turns),
            max_parallel_calls=max((turn.tool_call_count for turn in turns), default=0),
            malformed_turns=sum(turn.malformed for turn in turns),
            prompt_tokens=self.agent_loop.prompt_tokens,
            completion_tokens=self.agent_loop.sampled_tokens,
        )

    def trajectory_json(self) -> dict[str, JsonValue]:
        return {
            "messages": cast("JsonValue", self.record.messages),
            "observed": [
                {"tool": source.tool, "exit_code": source.exit_code, "ms": round(source.ms, 1)} if source else None
                for source in self.record.observations
            ],
            "segments": segments_as_json(self.segments()),
        }


def build_model_run(
    agent: Agent,
    open_policy: Callable[[list[ChatMessage]], Policy],
    terminal: SandboxTerminal,
    observer: EpisodeObserver,
    *,
    settings: EpisodeSettings,
    segments: ReadSegments = tuple,
) -> AbstractContextManager[SolverRun]:
    """Return an attempt; ``open_policy`` returns the policy of a task, or of a step of it, from its opening."""
    record = MessageRecord()

    def open_recording_policy(step: Task) -> Policy:
        opening = agent.opening_messages(step)
        record.messages.extend(opening)
        return RecordingPolicy(open_policy(opening), record)

    loop = AgentLoop(agent, open_recording_policy, terminal, settings, observer)
    return nullcontext(ModelSolverRun(loop, record, segments))


def request_builder(given: EvaluateArguments) -> BuildRequest:
    """Return a function that builds an attempt's request; tasks are numbered in order of their first attempt."""
    indices: dict[str, int] = {}

    def build_request(attempt: AttemptId) -> RolloutRequest:
        return RolloutRequest(
            PURPOSE,
            GroupId(indices.setdefault(attempt.task, len(indices))),
            attempt.number,
            given.attempts,
            attempt.task,
            attempt.sampling_seed(given.seed),
            purpose=PURPOSE,
            greedy=given.greedy,
        )

    return build_request


def build_engine_spec(given: EvaluateArguments, config: RunConfig, directory: RunDirectory) -> EngineSpec:
    """Return the engine of the folder's model.  Raises UserError for a folder without a model, or with one that has too
    few positions for an episode."""
    folder = require_model_files(Path(given.model or "")).absolute()
    require_positions(config.agent.context_tokens, read_qwen_config(folder).max_position_embeddings)
    own = engine_spec(config, directory, folder, "engine-0", ClusterNode("node-0", "", "127.0.0.1"))
    return replace(own, lora=None, offloads_memory=False)


@asynccontextmanager
async def serve_model(spec: EngineSpec) -> AsyncGenerator[Engine]:
    """Serve a model with a server owned by this process.  Raises EngineStartError."""
    engine = SGLangEngine(spec)
    try:
        await engine.start(WeightManifest(WeightVersion(0), 0, NO_VERSION, spec.model_path, "", 0, 0))
        yield engine
    finally:
        await engine.stop()


async def load_calling_agent(given: EvaluateArguments, settings: WorkerSpec) -> Agent:
    """Return the agent whose replies are calls in the format of the folder's model.  Raises UserError."""
    return make_agent(settings.agent, await _load_call_format(given, settings))


async def _load_call_format(given: EvaluateArguments, settings: WorkerSpec) -> CallFormat:
    def read() -> CallFormat:
        return load_call_format(settings.agent.settings, str(Path(given.model or "").absolute()))

    return await asyncio.to_thread(read)


async def load_chat_format(given: EvaluateArguments, config: RunConfig, agent: Agent) -> ChatFormat:
    """Load the chat format of ``agent`` and the folder's model.  Raises UserError if they do not fit together."""

    def read() -> ChatFormat:
        folder = str(Path(given.model or "").absolute())
        chat = chat_format.load_chat_format(
            folder, agent.offered_tools, thinking=config.agent.thinking.template_argument
        )
        require_readable_replies(config.agent, chat.tokenizer)
        return chat

    return await asyncio.to_thread(read)


@asynccontextmanager
async def served_model_solver(
    engine: Engine, chat: ChatFormat, given: EvaluateArguments, settings: WorkerSpec, agent: Agent
) -> AsyncGenerator[Solver]:
    """Open a solver that samples from ``engine``, which may serve others too."""
    episode, build_request = settings.episode, request_builder(given)

    def build_sampling(attempt: AttemptId) -> EpisodeSampling:
        return make_sampling(
            episode,
            build_request(attempt),
            reply_timeout_s=settings.reply_timeout_s,
            restart_timeout_s=settings.restart_timeout_s,
            evaluation_temperature=given.temperature or EVALUATION_TEMPERATURE,
        )

    def start(
        task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver
    ) -> AbstractContextManager[SolverRun]:
        del task
        contexts, sampling = StepContexts(episode, chat), build_sampling(attempt)

        def open_policy(opening: list[ChatMessage]) -> Policy:
            return TokenPolicy(chat, contexts.open(opening), engine.generate, sampling)

        return build_model_run(agent, open_policy, terminal, observer, settings=episode, segments=contexts.segments)

    if not settings.harness.harness:
        yield start
    else:
        calls = await _load_call_format(given, settings)
        async with HarnessRunner(settings.harness, chat.tokenizer, engine.generate, calls) as harnesses:
            yield gateway_solver(harnesses, episode, build_sampling)


async def fetch_first_model(given: EvaluateArguments, config: RunConfig) -> str:
    """Return the first model that the server at the URL lists.  Raises UserError if it is down or lists none."""
    async with ChatEndpoint(_endpoint_settings(given, config)) as endpoint:
        known = await endpoint.list_models()
    if not known:
        raise UserError(f"{given.model} lists no models: name one, --model-name NAME")
    return known[0]


def _endpoint_settings(given: EvaluateArguments, config: RunConfig) -> ChatEndpointSettings:
    return ChatEndpointSettings(
        url=api_base_url(given.model or ""),
        model=given.model_name,
        key=read_key(given.key_file),
        deadline_s=config.engine.request_timeout_s,
    )


@asynccontextmanager
async def remote_model_solver(
    given: EvaluateArguments, config: RunConfig, settings: WorkerSpec, agent: Agent
) -> AsyncGenerator[Solver]:
    """Open a solver for a model at a URL.  Raises UserError if the server is down or lacks the model."""
    endpoint_settings, name = _endpoint_settings(given, config), given.model_name
    async with ChatEndpoint(endpoint_settings) as endpoint:
        known = await endpoint.list_models()
    if known and name not in known:
        raise UserError(
            f"{given.model} has no model {name!r}: it has {', '.join(known[:10])}{did_you_mean(name, known)}: name "
            "one of them, --model-name NAME, and for another model than the folder's also --output FOLDER"
        )
    episode = settings.episode
    if settings.harness.harness:
        temperature = 0.0 if given.greedy else given.temperature
        relay_settings = RelaySettings(
            url=endpoint_settings.url,
            model=name,
            key=endpoint_settings.key,
            temperature=temperature,
            max_replies=episode.max_turns,
            deadline_s=endpoint_settings.deadline_s,
        )
        async with ApiRelay(relay_settings) as relay:
            yield relay_solver(relay, settings.harness, episode, request_builder(given))
        return
    tools = [tool.schema for tool in agent.offered_tools.values()]
    thinking = config.agent.thinking.template_argument
    async with ChatEndpoint(replace(endpoint_settings, thinking=thinking)) as endpoint:

        def start(
            task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver
        ) -> AbstractContextManager[SolverRun]:
            del task

            def open_policy(opening: list[ChatMessage]) -> Policy:
                return ChatPolicy(
                    endpoint,
                    opening,
                    tools=tools,
                    context_tokens=episode.context_tokens,
                    temperature=0.0 if given.greedy else given.temperature,
                    seed=attempt.sampling_seed(given.seed),
                )

            return build_model_run(agent, open_policy, terminal, observer, settings=episode)

        yield start
