"""A model by its agent: served here from a folder, or at a URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from actors.agents.agent import Agent
from actors.agents.chat import ChatFormat, Message, chat_format
from actors.branches import Noted
from actors.chat_policy import ChatEndpoint, ChatPolicy, EndpointSettings
from actors.engines.engine import Engine
from actors.engines.settings import EngineSettings
from actors.episode import Acting, EpisodeSettings, Observer
from actors.harnesses import Harnesses
from actors.policy import Policy, Said, TokenPolicy
from actors.rewards.played import ModelTurn
from actors.terminal import SandboxTerminal
from actors.worker import WorkerSettings
from launch.config import RunConfig
from launch.evaluate.arguments import Asked, read_key
from launch.evaluate.attempts import AttemptId, Effort
from launch.evaluate.harnessed import TicketOf, through_gateway, through_relay
from launch.evaluate.players import Attempting, Player
from launch.evaluate.relay import Relay, RelaySettings
from launch.evaluate.told import told_segments
from launch.nodes import Node
from launch.prepare import check_model
from launch.rundir import RunDirectory
from launch.settings import engine_settings
from protocol.cli.words import did_you_mean
from protocol.errors import UserError
from protocol.events import Json
from protocol.trajectory import GroupId, Segment, Status, Ticket
from protocol.weights import NO_VERSION, Version, WeightManifest
from sandbox.tasks.task import Task

Segments = Callable[[], Sequence[Segment]]
PURPOSE = "evaluate"


class Transcript:
    """A policy, and what was said with it."""

    def __init__(self, policy: Policy, opening: list[Message]) -> None:
        self._policy, self.messages = policy, [*opening]
        self.noted: list[Noted | None] = []
        """Of each reply what came of it; None where nothing was told."""
        self._said = ""

    @property
    def room(self) -> int:
        return self._policy.room

    @property
    def begun(self) -> str:
        return self._policy.begun

    async def ask(self, turn: int, max_new_tokens: int) -> Said:
        said = await self._policy.ask(turn, max_new_tokens)
        self._said = said.text
        return said

    def keep(self, *, malformed: bool) -> None:
        self._policy.keep(malformed=malformed)
        self.messages.append({"role": "assistant", "content": self._policy.begun + self._said})
        self.noted.append(None)

    def observed(self, messages: list[Message], noted: Noted) -> bool:
        self.messages += messages
        self.noted[-1] = noted
        return self._policy.observed(messages, noted)

    def shortened(self, text: str, tokens: int) -> str:
        return self._policy.shortened(text, tokens)


@dataclass(frozen=True, slots=True)
class Modelled:
    """One attempt of a model."""

    acting: Acting
    transcript: Transcript
    segments: Segments

    def run(self) -> Coroutine[None, None, Status]:
        return self.acting.run()

    @property
    def turns(self) -> Sequence[ModelTurn]:
        return self.acting.diary.turns

    @property
    def last_words(self) -> str:
        return self.acting.diary.last_words

    @property
    def effort(self) -> Effort:
        turns = self.turns
        return Effort(
            turns=len(turns),
            calls=sum(turn.called for turn in turns),
            widest=max((turn.called for turn in turns), default=0),
            malformed=sum(turn.malformed for turn in turns),
            prompt_tokens=self.acting.prompt_tokens,
            completion_tokens=self.acting.sampled_tokens,
        )

    def told(self) -> dict[str, Json]:
        return {
            "messages": cast("Json", self.transcript.messages),
            "observed": [
                {"tool": noted.tool, "exit_code": noted.exit_code, "ms": round(noted.ms, 1)} if noted else None
                for noted in self.transcript.noted
            ],
            "segments": told_segments(self.segments()),
        }


def modelled(
    task: Task,
    agent: Agent,
    policy: Policy,
    terminal: SandboxTerminal,
    observer: Observer,
    *,
    settings: EpisodeSettings,
    segments: Segments = tuple,
) -> Attempting:
    transcript = Transcript(policy, agent.opening(task))
    return Modelled(Acting(task, agent, transcript, terminal, settings, observer), transcript, segments)


def ticketing(asked: Asked) -> TicketOf:
    """An attempt's ticket; tasks are numbered as they come."""
    places: dict[str, int] = {}

    def ticket_of(attempt: AttemptId) -> Ticket:
        return Ticket(
            PURPOSE,
            GroupId(places.setdefault(attempt.task, len(places))),
            attempt.number,
            asked.attempts,
            attempt.task,
            attempt.seed(asked.seed),
            purpose=PURPOSE,
            greedy=asked.greedy,
        )

    return ticket_of


def server_settings(asked: Asked, config: RunConfig, directory: RunDirectory) -> EngineSettings:
    """Of a server of the folder's model.  Raises UserError for a folder that is no model's."""
    folder = check_model(Path(asked.model)).absolute()
    own = engine_settings(config, directory, folder, "engine-0", Node("node-0", "", "127.0.0.1"))
    return replace(own, adapters=None, lends=False)


@asynccontextmanager
async def serving(settings: EngineSettings) -> AsyncGenerator[Engine]:
    """A server in this process's care, gone at the end.  Raises EngineStartError."""
    engine = Engine(settings)
    try:
        await engine.start(WeightManifest(Version(0), 0, NO_VERSION, settings.model_path, "", 0, 0))
        yield engine
    finally:
        await engine.stop()


async def spoken(asked: Asked, config: RunConfig, agent: Agent) -> ChatFormat:
    """How ``agent`` speaks with the folder's model.  Raises UserError where they do not go together."""

    def read() -> ChatFormat:
        folder = str(Path(asked.model).absolute())
        return chat_format(folder, agent.offered, thinking=config.agent.thinking.argument)

    return await asyncio.to_thread(read)


@asynccontextmanager
async def player_of(
    engine: Engine, chat: ChatFormat, asked: Asked, settings: WorkerSettings, agent: Agent
) -> AsyncGenerator[Player]:
    """Who is served by ``engine``, which may serve others too."""
    episode = replace(settings.episode, evaluation_temperature=asked.temperature or 1.0)
    tickets = ticketing(asked)

    def player(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: Observer) -> Attempting:
        context = episode.context(chat, agent.opening(task))
        policy = TokenPolicy(chat, context, engine.generate, episode.sampling(tickets(attempt)))
        return modelled(task, agent, policy, terminal, observer, settings=episode, segments=context.segments)

    if settings.harness is None:
        yield player
    else:
        async with Harnesses(settings.harness, chat.tokenizer, engine.generate) as harnesses:
            yield through_gateway(harnesses, episode, tickets)


async def first_model(asked: Asked, config: RunConfig) -> str:
    """The first that the server at the URL lists.  Raises UserError where nobody is there, or none is listed."""
    async with ChatEndpoint(_reaching(asked, config)) as asking:
        known = await asking.models()
    if not known:
        raise UserError(f"{asked.model} does not say which models it has: name one, --model-name NAME")
    return known[0]


def _reaching(asked: Asked, config: RunConfig) -> EndpointSettings:
    return EndpointSettings(
        url=asked.model.rstrip("/"),
        model=asked.model_name,
        key=read_key(asked.key_file),
        deadline_s=config.engine.request_timeout_s,
    )


@asynccontextmanager
async def remote(asked: Asked, config: RunConfig, settings: WorkerSettings, agent: Agent) -> AsyncGenerator[Player]:
    """A model at a URL.  Raises UserError where nobody is there, or not that model."""
    reaching, name = _reaching(asked, config), asked.model_name
    async with ChatEndpoint(reaching) as asking:
        known = await asking.models()
    if known and name not in known:
        raise UserError(
            f"{asked.model} has no model {name!r}: it has {', '.join(known[:10])}{did_you_mean(name, known)}: name the "
            "one that is meant, --model-name NAME, and for another one than the folder's --output FOLDER"
        )
    episode = settings.episode
    if settings.harness is not None:
        temperature = 0.0 if asked.greedy else asked.temperature
        told = RelaySettings(
            url=reaching.url,
            model=name,
            key=reaching.key,
            temperature=temperature,
            max_replies=episode.max_turns,
            deadline_s=reaching.deadline_s,
        )
        async with Relay(told) as relay:
            yield through_relay(relay, settings.harness, episode, ticketing(asked))
        return
    tools = [tool.schema for tool in agent.offered.values()]
    thinking = config.agent.thinking.argument
    async with ChatEndpoint(replace(reaching, thinking=thinking)) as endpoint:

        def player(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: Observer) -> Attempting:
            policy = ChatPolicy(
                endpoint,
                agent.opening(task),
                tools=tools,
                context_tokens=episode.context_tokens,
                temperature=0.0 if asked.greedy else asked.temperature,
                seed=attempt.seed(asked.seed),
            )
            return modelled(task, agent, policy, terminal, observer, settings=episode)

        yield player
