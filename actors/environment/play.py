"""One episode where its sandbox is: a sandbox, the agent's loop, the hidden tests.  However it ends, the sandbox goes.

What the agent asks the policy goes to the model's address as a chat (:mod:`actors.chat_policy`).  Stages have their
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
from actors.agents.choice import agent_of
from actors.agents.settings import AgentSettings
from actors.chat_policy import ChatEndpoint, ChatPolicy, EndpointSettings
from actors.environment.wire import AGENT, Begin, EpisodeOutcome, Limits, Shown
from actors.episode import Acting, Graded, until_graded
from actors.stages import Deadlines
from actors.terminal import SandboxTerminal
from protocol.errors import UserError
from protocol.trajectory import Reward
from sandbox.errors import SandboxStartError
from sandbox.pool import SandboxPool
from sandbox.session import SandboxSession
from sandbox.task_codec import decode_task
from sandbox.tasks.task import Task

_SHOWN_CHARS = 16_000
"""Of one output, as much as a recording has."""
_MOST_SHOWN_CHARS = 1 << 20
"""Of all that is told of an episode's calls."""


@dataclass(frozen=True, slots=True)
class Part:
    """What an episode was asked to be, once it is known that it can be."""

    task: Task
    agent: Agent
    asked: Begin


def part_of(asked: Begin) -> Part:
    """Raises UserError for a task or an agent that is none here."""
    task = decode_task(asked.task)
    try:
        settings: AgentSettings = AGENT.validate_python(asked.agent)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(
            f"the agent cannot be read ({where}: {first['msg']}): let the run and this service have the same version"
        ) from error
    return Part(task, agent_of(settings), asked)


async def play(part: Part, pool: SandboxPool) -> EpisodeOutcome:
    """Raises UserError and InfraError: nothing of what goes wrong is the policy's then."""
    task, asked, limits = part.task, part.asked, part.asked.limits
    deadlines = Deadlines.of(
        asyncio.get_running_loop().time(), asked.deadline_s, evaluate_s=limits.grade_s, after_s=limits.cleanup_s
    )
    reaching = EndpointSettings(
        url=asked.model.url.rstrip("/"), model=asked.model.name, key=asked.model.key, deadline_s=limits.reply_s
    )
    begun = time.monotonic()
    async with ChatEndpoint(reaching) as endpoint, _sandbox(pool, task, asked.deadline_s, limits) as session:
        acquire_ms = (time.monotonic() - begun) * 1000
        notes = Notes()
        terminal = SandboxTerminal(
            session,
            task,
            limits.command_s,
            limits.grade_s,
            limits.observation_chars,
            vanished_before=asked.vanished_before,
            tools=part.agent.tools,
        )
        policy = ChatPolicy(
            endpoint,
            part.agent.opening(task),
            tools=[tool.schema for tool in part.agent.offered.values()],
            context_tokens=limits.context_tokens,
            temperature=limits.temperature,
            seed=asked.seed,
        )
        acting = Acting(task, part.agent, policy, terminal, limits.episode(), notes)
        ended = await until_graded(acting.run(), terminal, task, lambda: acting.diary.last_words, deadlines)
        return EpisodeOutcome(
            ended.status,
            ended.graded,
            ended.error,
            tuple(acting.diary.turns),
            tuple(notes.shown),
            {"acquire": acquire_ms, "tool": acting.tool_ms},
        )


@contextlib.asynccontextmanager
async def _sandbox(pool: SandboxPool, task: Task, deadline_s: float, limits: Limits) -> AsyncGenerator[SandboxSession]:
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
class Notes:
    """An observer (:class:`actors.episode.Observer`) that notes calls and what came of them, for who was not there."""

    shown: list[Shown] = field(default_factory=list[Shown])
    _left: int = _MOST_SHOWN_CHARS

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None:
        """Whose policy it is has heard it."""

    def on_call(self, name: str, command: str) -> None:
        self._note(Shown("call", name, command[:_SHOWN_CHARS]))

    def on_output(self, text: str) -> None:
        """The whole comes at its end."""

    def on_result(self, output: str) -> None:
        self._note(Shown("result", "", output[:_SHOWN_CHARS]))

    def on_grade(self, graded: Graded, reward: Reward) -> None:
        """There is no reward here."""

    def _note(self, shown: Shown) -> None:
        if self._left > len(shown.text):
            self._left -= len(shown.text)
            self.shown.append(shown)
