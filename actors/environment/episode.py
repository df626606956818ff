"""One hosted episode: a sandbox, the agent's loop, the hidden tests.  The sandbox is removed however it ends.

The agent calls the policy by OpenAI's chat API (:mod:`actors.rollout.chat_policy`).  Stages have the same deadlines as
in a worker.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial

from pydantic import ValidationError

from actors.agents.agent import Agent
from actors.agents.registry import make_agent
from actors.agents.settings import AgentSpec
from actors.environment.messages import AGENT_ADAPTER, EpisodeOutcome, StartEpisodeRequest, ToolEvent
from actors.rollout.agent_loop import AgentLoop
from actors.rollout.chat_policy import ChatEndpoint, ChatEndpointSettings, ChatPolicy
from actors.rollout.grading import run_and_grade
from actors.rollout.sandbox_terminal import hold_terminal
from actors.rollout.stages import StageDeadlines
from actors.rollout.terminal import EpisodeGrade, TerminalLimits
from protocol.cli.validation_errors import first_invalid_value
from protocol.errors import UserError
from protocol.trajectory import Reward
from sandbox.http.task_codec import decode_task
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.providers.interface import LocalProvider
from sandbox.tasks.task import Task

_EVENT_CHARS = 16_000
"""Maximum number of characters of one tool event, as many as a recording shows."""
_ALL_EVENT_CHARS = 1 << 20
"""Maximum number of characters of all tool events of an episode."""


@dataclass(frozen=True, slots=True)
class EpisodeInputs:
    """A checked request: its task and its agent exist."""

    task: Task
    agent: Agent
    begin: StartEpisodeRequest


def parse_episode_inputs(begin: StartEpisodeRequest) -> EpisodeInputs:
    """Check a request.  Raises UserError for a task or an agent that this service cannot make."""
    task = decode_task(begin.task)
    try:
        spec: AgentSpec = AGENT_ADAPTER.validate_python(begin.agent)
    except ValidationError as error:
        where, why = first_invalid_value(error)
        raise UserError(
            f"the agent cannot be read ({where}: {why}): run one longshore version here and in the run"
        ) from error
    return EpisodeInputs(task, make_agent(spec), begin)


async def run_hosted_episode(inputs: EpisodeInputs, pool: SandboxPool) -> EpisodeOutcome:
    """Run one episode.  Raises UserError and InfraError, neither of which the policy caused."""
    task, begin, limits = inputs.task, inputs.begin, inputs.begin.limits
    deadlines = StageDeadlines.for_episode(
        asyncio.get_running_loop().time(), begin.deadline_s, evaluate_s=limits.grade_s, after_s=limits.cleanup_s
    )
    model = ChatEndpointSettings(
        url=begin.model.url.rstrip("/"), model=begin.model.name, key=begin.model.key, deadline_s=limits.reply_s
    )
    holding = hold_terminal(
        LocalProvider(pool).open(task, begin.deadline_s),
        task,
        TerminalLimits(
            limits.acquire_s, limits.command_s, limits.grade_s, limits.cleanup_s, limits.settings.observation_chars
        ),
        inputs.agent.tools,
        vanished_before=begin.vanished_before,
        on_slow_cleanup=lambda _: None,
    )
    begun = time.monotonic()
    async with ChatEndpoint(model) as endpoint, holding as terminal:
        acquire_ms = (time.monotonic() - begun) * 1000
        observer = ToolEventObserver()
        open_policy = partial(open_chat_policy, inputs, endpoint)
        loop = AgentLoop(inputs.agent, open_policy, terminal, limits.settings, observer)
        transcript = loop.transcript
        graded = await run_and_grade(
            loop.play, terminal, terminal.shown_task, lambda: transcript.last_content, deadlines
        )
        return EpisodeOutcome(
            graded.status,
            graded.grade,
            graded.error,
            tuple(transcript.turns),
            tuple(observer.events),
            {"acquire": acquire_ms, "tool": loop.tool_ms},
        )


def open_chat_policy(inputs: EpisodeInputs, endpoint: ChatEndpoint, step: Task) -> ChatPolicy:
    """Return the policy of a step of an episode, sampled by ``endpoint``."""
    limits, agent = inputs.begin.limits, inputs.agent
    return ChatPolicy(
        endpoint,
        agent.opening_messages(step),
        tools=[tool.schema for tool in agent.offered_tools.values()],
        context_tokens=limits.settings.context_tokens,
        temperature=limits.temperature,
        seed=inputs.begin.seed,
    )


@dataclass(slots=True)
class ToolEventObserver:
    """An :class:`actors.rollout.observer.EpisodeObserver` that keeps tool calls and their results for the worker."""

    events: list[ToolEvent] = field(default_factory=list[ToolEvent])
    _chars_left: int = _ALL_EVENT_CHARS

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None:
        """Ignore replies: the worker's gateway sees them itself."""

    def on_call(self, name: str, command: str) -> None:
        self._keep(ToolEvent("call", name, command[:_EVENT_CHARS]))

    def on_output(self, text: str) -> None:
        """Ignore partial output: the whole output follows at the end."""

    def on_result(self, output: str) -> None:
        self._keep(ToolEvent("result", "", output[:_EVENT_CHARS]))

    def on_picture(self, picture: bytes) -> None:
        """Ignore pictures: an episode on another machine has none."""

    def on_grade(self, graded: EpisodeGrade, reward: Reward) -> None:
        """Ignore the grade: the worker computes the reward."""

    def _keep(self, event: ToolEvent) -> None:
        if self._chars_left > len(event.text):
            self._chars_left -= len(event.text)
            self.events.append(event)
