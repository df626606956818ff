"""One episode where its sandbox is: a sandbox, the agent's loop, the hidden tests.  However it ends, the sandbox goes.

What the agent asks the policy goes to the model's address as a chat (:mod:`actors.rollout.chat_policy`).  Stages have their
deadlines as in a worker, so that each has its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from pydantic import ValidationError

from actors.agents.agent import Agent
from actors.agents.registry import make_agent
from actors.agents.settings import AgentSettings
from actors.environment.messages import AGENT_ADAPTER, BeginEpisode, EpisodeLimits, EpisodeOutcome, ToolEvent
from actors.rollout.chat_policy import ChatEndpoint, ChatEndpointSettings, ChatPolicy
from actors.rollout.episode import AgentLoop, EpisodeGrade, run_and_grade
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.stages import StageDeadlines
from protocol.errors import UserError
from protocol.trajectory import Reward
from sandbox.errors import SandboxStartError
from sandbox.http.task_codec import decode_task
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task

_SHOWN_CHARS = 16_000
"""Of one output, as much as a recording has."""
_MOST_SHOWN_CHARS = 1 << 20
"""Of all that is told of an episode's calls."""


@dataclass(frozen=True, slots=True)
class EpisodeInputs:
    """What an episode was asked to be, once it is known that it can be."""

    task: Task
    agent: Agent
    begin: BeginEpisode


def parse_episode_inputs(begin: BeginEpisode) -> EpisodeInputs:
    """Raises UserError for a task or an agent that is none here."""
    task = decode_task(begin.task)
    try:
        settings: AgentSettings = AGENT_ADAPTER.validate_python(begin.agent)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(
            f"the agent cannot be read ({where}: {first['msg']}): let the run and this service have the same version"
        ) from error
    return EpisodeInputs(task, make_agent(settings), begin)


async def run_hosted_episode(inputs: EpisodeInputs, pool: SandboxPool) -> EpisodeOutcome:
    """Raises UserError and InfraError: nothing of what goes wrong is the policy's then."""
    task, asked, limits = inputs.task, inputs.begin, inputs.begin.limits
    deadlines = StageDeadlines.for_episode(
        asyncio.get_running_loop().time(), asked.deadline_s, evaluate_s=limits.grade_s, after_s=limits.cleanup_s
    )
    reaching = ChatEndpointSettings(
        url=asked.model.url.rstrip("/"), model=asked.model.name, key=asked.model.key, deadline_s=limits.reply_s
    )
    begun = time.monotonic()
    async with ChatEndpoint(reaching) as endpoint, _sandbox(pool, task, asked.deadline_s, limits) as session:
        acquire_ms = (time.monotonic() - begun) * 1000
        notes = ToolEventObserver()
        terminal = SandboxTerminal(
            session,
            task,
            limits.command_s,
            limits.grade_s,
            limits.observation_chars,
            vanished_before=asked.vanished_before,
            tools=inputs.agent.tools,
        )
        policy = ChatPolicy(
            endpoint,
            inputs.agent.opening_messages(task),
            tools=[tool.schema for tool in inputs.agent.offered_tools.values()],
            context_tokens=limits.context_tokens,
            temperature=limits.temperature,
            seed=asked.seed,
        )
        acting = AgentLoop(task, inputs.agent, policy, terminal, limits.to_episode_settings(), notes)
        ended = await run_and_grade(acting.run(), terminal, task, lambda: acting.transcript.last_content, deadlines)
        return EpisodeOutcome(
            ended.status,
            ended.grade,
            ended.error,
            tuple(acting.transcript.turns),
            tuple(notes.events),
            {"acquire": acquire_ms, "tool": acting.tool_ms},
        )


@contextlib.asynccontextmanager
async def _sandbox(
    pool: SandboxPool, task: Task, deadline_s: float, limits: EpisodeLimits
) -> AsyncGenerator[SandboxSession]:
    """One that is slow to end goes on ending by itself: what has been graded is not lost for it."""
    try:
        async with asyncio.timeout(limits.acquire_s):
            session = await pool.open(task, deadline_s)
    except TimeoutError as error:
        raise SandboxStartError(f"no sandbox within {limits.acquire_s:g} s") from error
    try:
        yield session
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.cleanup_s):
                await pool.close(session)


@dataclass(slots=True)
class ToolEventObserver:
    """An observer (:class:`actors.rollout.episode.Observer`) that notes calls and what came of them, for who was not there."""

    events: list[ToolEvent] = field(default_factory=list[ToolEvent])
    _left: int = _MOST_SHOWN_CHARS

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None:
        """Whose policy it is has heard it."""

    def on_call(self, name: str, command: str) -> None:
        self._note(ToolEvent("call", name, command[:_SHOWN_CHARS]))

    def on_output(self, text: str) -> None:
        """The whole comes at its end."""

    def on_result(self, output: str) -> None:
        self._note(ToolEvent("result", "", output[:_SHOWN_CHARS]))

    def on_grade(self, graded: EpisodeGrade, reward: Reward) -> None:
        """There is no reward here."""

    def _note(self, shown: ToolEvent) -> None:
        if self._left > len(shown.text):
            self._left -= len(shown.text)
            self.events.append(shown)
