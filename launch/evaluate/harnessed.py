"""A harness by its model: a program in the sandbox that asks a served model by the gateway, or a URL by a relay."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from actors.episode import EpisodeSettings, Observer, SandboxGone
from actors.harness import HarnessActing, HarnessSettings, Line, environment, unanswered
from actors.harnesses import Harnesses
from actors.rewards.played import ModelTurn
from actors.terminal import SandboxTerminal
from launch.evaluate.attempts import AttemptId, Effort
from launch.evaluate.players import Attempting, Player
from launch.evaluate.relay import OnReply, Relay, Relayed, Said
from launch.evaluate.told import told_segments
from protocol.events import Json
from protocol.trajectory import Segment, Status, Ticket
from protocol.weights import NO_VERSION
from sandbox.gate.doors import HOST
from sandbox.tasks.task import Task

TicketOf = Callable[[AttemptId], Ticket]


class Speaker(Line, Protocol):
    """Of what was said on a line, all that is known."""

    @property
    def last_words(self) -> str: ...
    @property
    def prompt_tokens(self) -> int: ...
    def turns(self) -> Sequence[ModelTurn]: ...
    def segments(self) -> Sequence[Segment]: ...


class Begun(NamedTuple):
    acting: HarnessActing
    speaker: Speaker


@dataclass(slots=True)
class Harnessed:
    """One attempt of a harness."""

    begin: Callable[[], AbstractContextManager[Begun]]
    """Opens its line."""
    _speaker: Speaker | None = None

    async def run(self) -> Status:
        with self.begin() as (acting, speaker):
            self._speaker = speaker
            try:
                status = await acting.run()
            except SandboxGone as gone:
                if not speaker.turns():
                    raise unanswered(str(gone)) from gone
                raise
        if not speaker.turns():
            raise unanswered(acting.ended_with)
        return status

    @property
    def turns(self) -> Sequence[ModelTurn]:
        return self._speaker.turns() if self._speaker is not None else ()

    @property
    def last_words(self) -> str:
        return self._speaker.last_words if self._speaker is not None else ""

    @property
    def effort(self) -> Effort:
        speaker, turns = self._speaker, self.turns
        if speaker is None:
            return Effort()
        return Effort(
            turns=len(turns),
            calls=sum(turn.called for turn in turns),
            widest=max((turn.called for turn in turns), default=0),
            malformed=sum(turn.malformed for turn in turns),
            prompt_tokens=speaker.prompt_tokens,
            completion_tokens=speaker.sampled_tokens,
        )

    def told(self) -> dict[str, Json]:
        """Its model's replies; what the harness asked is in the segments, where there are any."""
        segments = self._speaker.segments() if self._speaker is not None else ()
        return {
            "messages": [{"role": "assistant", "content": turn.text} for turn in self.turns],
            "segments": told_segments(segments),
        }


def through_gateway(harnesses: Harnesses, settings: EpisodeSettings, ticket_of: TicketOf) -> Player:
    def player(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: Observer) -> Attempting:
        @contextmanager
        def begin() -> Generator[Begun]:
            with harnesses.acting(ticket_of(attempt), task, terminal, settings, observer) as begun:
                yield Begun(*begun)

        return Harnessed(begin)

    return player


def on_reply(observer: Observer) -> OnReply:
    """Shows an observer what a model at a URL says; nobody knows its version."""

    def told(turn: int, said: Said, ms: float) -> None:
        observer.on_turn(turn, said.text, said.sampled_tokens, (NO_VERSION, NO_VERSION), ms)

    return told


def through_relay(relay: Relay, harness: HarnessSettings, settings: EpisodeSettings, ticket_of: TicketOf) -> Player:
    def player(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: Observer) -> Attempting:
        @asynccontextmanager
        async def reach(line: Relayed) -> AsyncGenerator[Mapping[str, str]]:
            async with relay.door(terminal.session, harness.port, line) as key:
                yield environment(f"http://{HOST}:{harness.port}", key, relay.settings.model, task)

        @contextmanager
        def begin() -> Generator[Begun]:
            ticket = ticket_of(attempt)
            with relay.session(ticket.trajectory_id, ticket.seed, on_reply(observer)) as line:
                acting = HarnessActing(task, line, terminal, harness.command, reach(line), settings, observer)
                yield Begun(acting, line)

        return Harnessed(begin)

    return player
