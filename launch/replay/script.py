"""A trajectory's replies said again, turn by turn, to its own agent in another sandbox.

The loop is an episode's; only the policy is none: it says what was said then, whatever it is told now.  So each reply's
actions are run whatever came of those before, and what is told now stands beside what was told then.  Time is no limit:
what was not run for want of it then is not run now either.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from actors.agents.agent import Agent, Reading, ToolCall
from actors.agents.chat import Message
from actors.branches import Noted
from actors.episode import Acting, EpisodeSettings, Graded, Observer, Terminal, ToolOutcome
from actors.policy import NoRoom, Said
from actors.rewards.played import ModelTurn, call_of
from launch.evaluate.attempts import Effort, Verdict
from launch.recorded.trajectory import Origin, Recorded, reading_of
from protocol.events import Json
from protocol.trajectory import Status
from sandbox.tasks.task import Task

_PLENTY = 1 << 30


class _Over(Exception):
    """Nothing more was run then."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a reply's actions led to, then and now."""

    turn: int
    commands: tuple[str, ...]
    then: str
    now: str
    exit_code: int | None = None
    exit_code_now: int | None = None

    @property
    def same(self) -> bool:
        return (self.then, self.exit_code) == (self.now, self.exit_code_now)


@dataclass(slots=True)
class Script:
    """A :class:`actors.policy.Policy` of one trajectory."""

    recorded: Recorded
    agent: Agent
    shorten: Callable[[str, int], str]
    begun: str = ""
    turn: int = -1
    """The one that is being played."""
    observations: list[Observation] = field(default_factory=list[Observation])
    calls: int = 0
    """Of the turn, so far."""

    @property
    def room(self) -> int:
        return _PLENTY

    async def ask(self, turn: int, max_new_tokens: int) -> Said:
        del max_new_tokens
        if turn >= len(self.recorded.replies):
            raise NoRoom
        self.turn, self.calls = turn, 0
        reply = self.recorded.replies[turn]
        tokens = len(reply.sampled.ids) if reply.sampled else 0
        cut = self.agent.read(reply.text).final and not self._reading().final
        return Said(reply.text, tokens, "length" if cut else "stop", 0.0, 0)

    def keep(self, *, malformed: bool) -> None:
        del malformed

    def observed(self, messages: list[Message], noted: Noted) -> bool:
        reply = self.recorded.replies[self.turn]
        if reply.told is not None:
            self.observations.append(
                Observation(
                    self.turn,
                    self._commands(),
                    _text(reply.told),
                    _text(messages),
                    reply.exit_code,
                    noted.exit_code,
                )
            )
        return True

    def shortened(self, text: str, tokens: int) -> str:
        return self.shorten(text, tokens)

    def count(self) -> None:
        """A call is to be run.  Raises _Over where it was not then."""
        ran = 0 if self._too_late() else self.recorded.replies[self.turn].ran
        if ran is not None and self.calls >= ran:
            raise _Over
        self.calls += 1

    def _too_late(self) -> bool:
        """It is a last word that came when the time was up: nothing was told then, and nothing of it was run."""
        verdict = self.recorded.verdict
        return verdict is not None and verdict.status is Status.TIME_LIMIT and self._reading().final

    def _reading(self) -> Reading:
        last = self.turn == len(self.recorded.replies) - 1
        return reading_of(self.agent, self.recorded.replies[self.turn], last=last)

    def _commands(self) -> tuple[str, ...]:
        actions = self._reading().actions
        return tuple(call_of(each.name, each.arguments).command for each in actions if isinstance(each, ToolCall))


@dataclass(frozen=True, slots=True)
class _Counted:
    """A terminal in which nothing is run that was not run then."""

    terminal: Terminal
    script: Script

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolOutcome:
        self.script.count()
        return await self.terminal.call(name, arguments, on_output)

    async def grade(self) -> Graded:
        return await self.terminal.grade()


@dataclass(frozen=True, slots=True)
class Replaying:
    """One replay: see :class:`launch.evaluate.players.Attempting`."""

    script: Script
    acting: Acting
    then: Verdict

    async def run(self) -> Status:
        status = Status.COMPLETED
        with contextlib.suppress(_Over):
            status = await self.acting.run()
        return self.then.status if self.then.status is not Status.SANDBOX_DESTROYED else status

    @property
    def turns(self) -> Sequence[ModelTurn]:
        return self.acting.diary.turns

    @property
    def last_words(self) -> str:
        return self.acting.diary.last_words

    @property
    def effort(self) -> Effort:
        recorded = self.script.recorded
        return Effort(
            turns=len(self.turns),
            prompt_tokens=recorded.prompt_tokens,
            completion_tokens=recorded.completion_tokens,
        )

    def told(self) -> dict[str, Json]:
        return {}


def replaying(
    recorded: Recorded,
    origin: Origin,
    task: Task,
    terminal: Terminal,
    *,
    then: Verdict,
    observer: Observer,
    settings: EpisodeSettings,
) -> Replaying:
    """``then`` is the verdict of ``recorded``."""
    script = Script(recorded, origin.agent, origin.shortened)
    unhurried = replace(settings, time_limit_s=math.inf, max_turns=len(recorded.replies) + 1)
    ageless = replace(task, agent_timeout_s=math.inf)
    acting = Acting(ageless, origin.agent, script, _Counted(terminal, script), unhurried, observer)
    return Replaying(script, acting, then)


def _text(messages: Sequence[Message]) -> str:
    return "\n".join(message["content"] for message in messages)
