"""Replays a trajectory's replies, turn by turn, to its own agent in another sandbox.

The agent loop is that of an episode, with a policy that repeats the recorded replies whatever it observes.  So the
actions of each reply run whatever earlier ones led to, and each new observation is paired with the recorded one.  There
is no time limit: calls that the recording had no time for do not run in the replay either.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from actors.agents.agent import Agent, AgentToolCall, ParsedReply
from actors.rewards.episode_result import ModelTurn, make_call_record
from actors.rollout.agent_loop import AgentLoop
from actors.rollout.observer import EpisodeObserver
from actors.rollout.policy import ContextFullError, PolicyCompletion
from actors.rollout.settings import EpisodeSettings
from actors.rollout.terminal import EpisodeGrade, EpisodeTerminal, ToolCallResult
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.segment_tree import ObservationSource
from launch.trajectory_reader.recorded_trajectory import RecordedTrajectory, TrajectoryOrigin, read_reply
from protocol.evaluation import AttemptUsage, AttemptVerdict
from protocol.events import JsonValue
from protocol.trajectory import EpisodeStatus
from sandbox.tasks.task import Task

_UNLIMITED_TOKENS = 1 << 30


class _NothingMoreRan(Exception):
    """The recorded episode ran nothing more."""


@dataclass(frozen=True, slots=True)
class ObservationComparison:
    """The observation after a reply, recorded and replayed."""

    turn: int
    commands: tuple[str, ...]
    recorded_output: str
    replayed_output: str
    recorded_exit_code: int | None = None
    replayed_exit_code: int | None = None

    @property
    def same(self) -> bool:
        return (self.recorded_output, self.recorded_exit_code) == (self.replayed_output, self.replayed_exit_code)


@dataclass(slots=True)
class ScriptedPolicy:
    """A :class:`actors.rollout.policy.Policy` that repeats the replies of one trajectory."""

    recorded: RecordedTrajectory
    agent: Agent
    shorten: Callable[[str, int], str]
    reply_prefix: str = ""
    turn: int = -1
    """The index of the turn that is being replayed."""
    observations: list[ObservationComparison] = field(default_factory=list[ObservationComparison])
    calls: int = 0
    """Number of calls in this turn so far."""

    @property
    def remaining_tokens(self) -> int:
        return _UNLIMITED_TOKENS

    async def complete(self, turn: int, max_new_tokens: int) -> PolicyCompletion:
        del max_new_tokens
        if turn >= len(self.recorded.replies):
            raise ContextFullError
        self.turn, self.calls = turn, 0
        reply = self.recorded.replies[turn]
        tokens = len(reply.sampled.ids) if reply.sampled else 0
        cut = self.agent.parse_reply(reply.text).final and not self._parsed_reply().final
        return PolicyCompletion(reply.text, tokens, "length" if cut else "stop", 0.0, 0)

    def commit_reply(self, *, malformed: bool) -> None:
        del malformed

    def append_observation(self, messages: list[ChatMessage], source: ObservationSource) -> bool:
        reply = self.recorded.replies[self.turn]
        if reply.observation is not None:
            self.observations.append(
                ObservationComparison(
                    self.turn,
                    self._commands(),
                    _text(reply.observation),
                    _text(messages),
                    reply.exit_code,
                    source.exit_code,
                )
            )
        return True

    def truncate_text(self, text: str, tokens: int) -> str:
        return self.shorten(text, tokens)

    def count_call(self) -> None:
        """Count a call before it runs.  Raises _NothingMoreRan if the recording did not run it."""
        calls_run = 0 if self._ended_by_time_limit() else self.recorded.replies[self.turn].calls_run
        if calls_run is not None and self.calls >= calls_run:
            raise _NothingMoreRan
        self.calls += 1

    def _ended_by_time_limit(self) -> bool:
        """Return whether this is a last reply that came after the time limit: none of its calls ran."""
        verdict = self.recorded.verdict
        return verdict is not None and verdict.status is EpisodeStatus.TIME_LIMIT and self._parsed_reply().final

    def _parsed_reply(self) -> ParsedReply:
        last = self.turn == len(self.recorded.replies) - 1
        return read_reply(self.agent, self.recorded.replies[self.turn], last=last)

    def _commands(self) -> tuple[str, ...]:
        actions = self._parsed_reply().actions
        return tuple(
            make_call_record(each.name, each.arguments).command for each in actions if isinstance(each, AgentToolCall)
        )


@dataclass(frozen=True, slots=True)
class _LimitedTerminal:
    """A terminal that runs only as many calls as the recording did."""

    terminal: EpisodeTerminal
    script: ScriptedPolicy

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        self.script.count_call()
        return await self.terminal.call(name, arguments, on_output)

    async def grade(self, last_reply: str) -> EpisodeGrade:
        return await self.terminal.grade(last_reply)


@dataclass(frozen=True, slots=True)
class ReplayEpisode:
    """One replay, as a :class:`launch.evaluation.solvers.solver.SolverRun`."""

    script: ScriptedPolicy
    agent_loop: AgentLoop
    recorded_verdict: AttemptVerdict

    async def play(self, task: Task) -> EpisodeStatus:
        status = EpisodeStatus.COMPLETED
        with contextlib.suppress(_NothingMoreRan):
            status = await self.agent_loop.play(replace(task, agent_timeout_s=math.inf))
        return (
            self.recorded_verdict.status
            if self.recorded_verdict.status is not EpisodeStatus.SANDBOX_DESTROYED
            else status
        )

    @property
    def turns(self) -> Sequence[ModelTurn]:
        return self.agent_loop.transcript.turns

    @property
    def final_answer(self) -> str:
        return self.agent_loop.transcript.last_content

    @property
    def usage(self) -> AttemptUsage:
        recorded = self.script.recorded
        return AttemptUsage(
            turns=len(self.turns),
            prompt_tokens=recorded.prompt_tokens,
            completion_tokens=recorded.completion_tokens,
        )

    def trajectory_json(self) -> dict[str, JsonValue]:
        return {}


def create_replay_episode(
    recorded: RecordedTrajectory,
    origin: TrajectoryOrigin,
    terminal: EpisodeTerminal,
    *,
    recorded_verdict: AttemptVerdict,
    observer: EpisodeObserver,
    settings: EpisodeSettings,
) -> ReplayEpisode:
    """Create a replay of ``recorded``, whose verdict was ``recorded_verdict``."""
    script = ScriptedPolicy(recorded, origin.agent, origin.shorten)
    untimed_settings = settings.model_copy(update={"time_limit_s": math.inf, "max_turns": len(recorded.replies) + 1})
    limited = _LimitedTerminal(terminal, script)
    agent_loop = AgentLoop(origin.agent, lambda _: script, limited, untimed_settings, observer)
    return ReplayEpisode(script, agent_loop, recorded_verdict)


def _text(messages: Sequence[ChatMessage]) -> str:
    return "\n".join(message["content"] for message in messages)
