"""Replays a trajectory's replies, turn by turn, to its own agent in another sandbox.

The loop is an episode's; only the policy is none: it says what was said then, whatever it is told now.  So each reply's
actions are run whatever came of those before, and what is told now stands beside what was told then.  Time is no limit:
what was not run for want of it then is not run now either.
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
from actors.tokens.chat_format import ChatMessage
from actors.tokens.segment_tree import ObservationSource
from launch.evaluation.attempts import AttemptUsage, AttemptVerdict
from launch.trajectory_reader.recorded_trajectory import RecordedTrajectory, TrajectoryOrigin, read_reply
from protocol.events import JsonValue
from protocol.trajectory import EpisodeStatus
from sandbox.tasks.task import Task

_PLENTY = 1 << 30


class _NothingMoreRan(Exception):
    """The recorded episode ran nothing more."""


@dataclass(frozen=True, slots=True)
class ObservationComparison:
    """What a reply's actions led to, recorded and replayed."""

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
    """A :class:`actors.rollout.policy.Policy` that repeats one trajectory."""

    recorded: RecordedTrajectory
    agent: Agent
    shorten: Callable[[str, int], str]
    reply_prefix: str = ""
    turn: int = -1
    """The index of the turn that is being replayed."""
    observations: list[ObservationComparison] = field(default_factory=list[ObservationComparison])
    calls: int = 0
    """Calls of the turn so far."""

    @property
    def remaining_tokens(self) -> int:
        return _PLENTY

    async def complete(self, turn: int, max_new_tokens: int) -> PolicyCompletion:
        del max_new_tokens
        if turn >= len(self.recorded.replies):
            raise ContextFullError
        self.turn, self.calls = turn, 0
        reply = self.recorded.replies[turn]
        tokens = len(reply.sampled.ids) if reply.sampled else 0
        cut = self.agent.parse_reply(reply.text).final and not self._reading().final
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
        ran = 0 if self._too_late() else self.recorded.replies[self.turn].calls_run
        if ran is not None and self.calls >= ran:
            raise _NothingMoreRan
        self.calls += 1

    def _too_late(self) -> bool:
        """Return whether this is the last reply, which came when the time was up: nothing was told then, and nothing
        of it was run."""
        verdict = self.recorded.verdict
        return verdict is not None and verdict.status is EpisodeStatus.TIME_LIMIT and self._reading().final

    def _reading(self) -> ParsedReply:
        last = self.turn == len(self.recorded.replies) - 1
        return read_reply(self.agent, self.recorded.replies[self.turn], last=last)

    def _commands(self) -> tuple[str, ...]:
        actions = self._reading().actions
        return tuple(
            make_call_record(each.name, each.arguments).command for each in actions if isinstance(each, AgentToolCall)
        )


@dataclass(frozen=True, slots=True)
class _LimitedTerminal:
    """A terminal that runs nothing that was not run in the recording."""

    terminal: EpisodeTerminal
    script: ScriptedPolicy

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        self.script.count_call()
        return await self.terminal.call(name, arguments, on_output)

    async def grade(self) -> EpisodeGrade:
        return await self.terminal.grade()


@dataclass(frozen=True, slots=True)
class ReplayEpisode:
    """One replay, as :class:`launch.evaluation.solvers.solver.Attempting` describes it."""

    script: ScriptedPolicy
    acting: AgentLoop
    recorded_verdict: AttemptVerdict

    async def run(self) -> EpisodeStatus:
        status = EpisodeStatus.COMPLETED
        with contextlib.suppress(_NothingMoreRan):
            status = await self.acting.run()
        return (
            self.recorded_verdict.status
            if self.recorded_verdict.status is not EpisodeStatus.SANDBOX_DESTROYED
            else status
        )

    @property
    def turns(self) -> Sequence[ModelTurn]:
        return self.acting.transcript.turns

    @property
    def final_answer(self) -> str:
        return self.acting.transcript.last_content

    @property
    def effort(self) -> AttemptUsage:
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
    task: Task,
    terminal: EpisodeTerminal,
    *,
    then: AttemptVerdict,
    observer: EpisodeObserver,
    settings: EpisodeSettings,
) -> ReplayEpisode:
    """Create the replay of ``recorded``, whose verdict was ``then``."""
    script = ScriptedPolicy(recorded, origin.agent, origin.shorten)
    unhurried = settings.model_copy(update={"time_limit_s": math.inf, "max_turns": len(recorded.replies) + 1})
    ageless = replace(task, agent_timeout_s=math.inf)
    acting = AgentLoop(ageless, origin.agent, script, _LimitedTerminal(terminal, script), unhurried, observer)
    return ReplayEpisode(script, acting, then)


def _text(messages: Sequence[ChatMessage]) -> str:
    return "\n".join(message["content"] for message in messages)
