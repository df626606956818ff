"""One agent, one task, one trajectory.  No Ray, no socket, no clock of its own.

The loop: prompt ids → sampled ids, appended as they are → parse the action → run the tool → append the observation's
ids with mask 0 → … → grade → reward.  It ends in a :class:`Trajectory` whose status says what the *policy* did, or it
raises :class:`InfraError`, after which the worker gives the ticket back.  Nothing is trained that was not sampled by
the engine, and no token is ever re-tokenised.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from actors.agents.chat import ChatFormat, Message, opening
from actors.agents.hermes import Action, Final, Malformed, ToolCall, parse
from actors.engines.messages import Generate, GenerateReply, GenerateRequest
from actors.rewards.played import Diary, ModelTurn, Played, call_of
from actors.rewards.rewarding import PLAIN, Rewarding, rewarded
from actors.tape import Tape
from protocol.trajectory import TRAIN, Reward, Segment, Status, TestResult, Ticket, Trajectory, TurnKind
from sandbox.grading.answer import ANSWER, is_right
from sandbox.tasks.task import Task

_EVALUATION_TEMPERATURE = 1.0
"""That of pass@1, whatever a run trains at."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a tool answered.  ``text`` goes to the agent, ``raw`` to the recording; ``ms`` counts against its time."""

    text: str
    raw: str
    exit_code: int | None
    ms: float
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Graded:
    tests: tuple[TestResult, ...]
    pass_ratio: float
    all_passed: bool
    ms: float
    suspicious: tuple[str, ...] = ()
    """Of a full pass: what a person should read, one line each."""
    score: float = 0.0
    """Weight of what passed ÷ weight of all; the tests' own reward where that is all that they wrote."""


class SandboxGone(Exception):
    """The agent destroyed its own sandbox while daemon, host and pool were healthy."""


class Terminal(Protocol):
    """What an episode needs of a sandbox.  Methods raise :class:`SandboxGone` when the agent destroyed it, and
    :class:`InfraError` when anything else took it away."""

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolOutcome: ...
    async def grade(self) -> Graded: ...


class Gradable(Protocol):
    """Raises as :class:`Terminal` does."""

    async def grade(self) -> Graded: ...


class Ended(NamedTuple):
    status: Status
    graded: Graded
    error: str
    """One line for a person: why the status is not ``completed``."""

    def played(self, task: Task, turns: Sequence[ModelTurn], segments: Sequence[Segment]) -> Played:
        """What its reward is taken of."""
        graded = self.graded
        return Played(
            task.instruction,
            self.status,
            graded.tests,
            graded.pass_ratio,
            graded.all_passed,
            graded.score,
            tuple(turns),
            sum(int(segment.loss_mask.sum()) for segment in segments),
        )

    def trajectory(
        self,
        ticket: Ticket,
        reward: Reward,
        segments: tuple[Segment, ...],
        engine: str,
        timings_ms: dict[str, float],
    ) -> Trajectory:
        return Trajectory(
            ticket,
            self.status,
            reward,
            segments,
            tests=self.graded.tests,
            engine=engine,
            timings_ms={**timings_ms, "grade": self.graded.ms},
            error=self.error,
        )


async def until_graded(
    acting: Coroutine[None, None, Status], place: Gradable, task: Task, last_words: Callable[[], str]
) -> Ended:
    """Let the agent act, then grade: by its last words where the task asks for an answer, else by the task's tests.  An
    agent that destroyed its sandbox failed each test."""
    try:
        status = await acting
        graded = _answered(task.answer, last_words()) if task.answer else await place.grade()
    except SandboxGone as gone:
        failed = tuple(TestResult(name, False) for name in ((ANSWER,) if task.answer else task.expected_tests))
        return Ended(Status.SANDBOX_DESTROYED, Graded(failed, 0.0, False, 0.0), str(gone))
    error = "" if status is Status.COMPLETED else f"ended by its {status.value.replace('_', ' ')}"
    return Ended(status, graded, error)


def _answered(wanted: str, last_words: str) -> Graded:
    right = is_right(last_words, wanted)
    return Graded((TestResult(ANSWER, right),), float(right), right, 0.0, score=float(right))


class Observer(Protocol):
    """Sees the episode as it happens: recordings and telemetry.  Must not raise."""

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None:
        """``ms``: from the request to the engine's whole reply."""

    def on_call(self, name: str, command: str) -> None: ...
    def on_output(self, text: str) -> None:
        """A part of the call's output, as it comes; a tool need not give any before its end."""

    def on_result(self, output: str) -> None: ...
    def on_grade(self, graded: Graded, reward: Reward) -> None: ...


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    system_prompt: str
    max_turns: int
    max_malformed: int
    max_new_tokens: int
    """Tokens a turn at most."""
    context_tokens: int
    """Of the whole episode: where an observation would leave no place for a reply, it ends instead."""
    temperature: float
    """In training; evaluations sample at 1."""
    generate_deadline_s: float
    engine_restart_s: float
    """How long a turn may wait beside for an engine that starts again."""
    nominal_tokens_per_s: float
    """A sampled token costs the agent 1 ÷ this many seconds of its time, however busy the engine was."""
    time_limit_s: float
    """The agent's own time, unless its task allows less."""
    reward: Rewarding = PLAIN

    def temperature_of(self, ticket: Ticket) -> float:
        return self.temperature if ticket.purpose == TRAIN else _EVALUATION_TEMPERATURE


@dataclass(slots=True)
class Episode:
    """Runs one ticket to its end.  ``run`` may be called once."""

    ticket: Ticket
    task: Task
    chat: ChatFormat
    generate: Generate
    terminal: Terminal
    settings: EpisodeSettings
    observer: Observer
    _tape: Tape = field(default_factory=Tape)
    _diary: Diary = field(default_factory=Diary)
    _engine: str = ""
    _used_s: float = 0.0
    _malformed: int = 0
    _generate_ms: float = 0.0
    _tool_ms: float = 0.0

    async def run(self) -> Trajectory:
        """The finished trajectory.  Raises :class:`InfraError` when infrastructure failed."""
        messages = opening(self.settings.system_prompt, self.task.instruction)
        self._tape.given(TurnKind.PROMPT, self.chat.first_prompt(messages))
        ended = await until_graded(self._converse(), self.terminal, self.task, lambda: self._diary.last_words)
        segments = (self._tape.segment(),)
        played = ended.played(self.task, self._diary.turns, segments)
        reward, segments = await rewarded(self.settings.reward, played, segments)
        self.observer.on_grade(ended.graded, reward)
        timings_ms = {"generate": self._generate_ms, "tool": self._tool_ms}
        return ended.trajectory(self.ticket, reward, segments, self._engine, timings_ms)

    async def _converse(self) -> Status:
        for turn in range(self.settings.max_turns):
            room = self.settings.context_tokens - len(self._tape.token_ids)
            if room < 1:
                return Status.CONTEXT_LIMIT
            reply = await self._sample(turn, min(self.settings.max_new_tokens, room))
            text = self.chat.text(reply.token_ids)
            versions = min(reply.versions), max(reply.versions)
            self.observer.on_turn(turn, text, len(reply.token_ids), versions, reply.ms)
            actions = parse(text)
            if reply.finish == "length" and isinstance(actions, Final):
                if room <= self.settings.max_new_tokens:
                    self._sampled(reply, text, (), malformed=True)
                    return Status.CONTEXT_LIMIT
                actions = [Malformed(f"the reply was cut after {len(reply.token_ids)} tokens")]
            self._sampled(reply, text, actions, malformed=_has_malformed(actions))
            if isinstance(actions, Final):
                return Status.COMPLETED
            answers = [await self._act(action) for action in actions]
            fits = self._observe(answers, closed=reply.token_ids[-1] == self.chat.turn_end)
            if self._malformed >= self.settings.max_malformed:
                return Status.MALFORMED_LIMIT
            if self._time_is_up:
                return Status.TIME_LIMIT
            if not fits:
                return Status.CONTEXT_LIMIT
        return Status.TURN_LIMIT

    @property
    def _time_is_up(self) -> bool:
        return self._used_s >= min(self.task.agent_timeout_s, self.settings.time_limit_s)

    async def _sample(self, turn: int, max_new_tokens: int) -> GenerateReply:
        reply = await self.generate(
            GenerateRequest(
                input_ids=list(self._tape.token_ids),
                max_new_tokens=max_new_tokens,
                temperature=self.settings.temperature_of(self.ticket),
                stop_token_ids=(self.chat.turn_end,),
                seed=(self.ticket.seed + turn) & 0x7FFFFFFF,
                greedy=self.ticket.greedy,
                session=f"{self.ticket.trajectory_id}-a{self.ticket.attempt}",
                deadline_s=self.settings.generate_deadline_s,
                restart_s=self.settings.engine_restart_s,
            )
        )
        self._engine = reply.engine
        self._generate_ms += reply.ms
        self._used_s += len(reply.token_ids) / self.settings.nominal_tokens_per_s
        return reply

    def _sampled(self, reply: GenerateReply, text: str, actions: Final | Sequence[Action], *, malformed: bool) -> None:
        self._tape.sampled(reply, malformed=malformed)
        asked = () if isinstance(actions, Final) else actions
        calls = [call_of(action.name, action.arguments) for action in asked if isinstance(action, ToolCall)]
        self._diary.said(text, calls, malformed=malformed)

    async def _act(self, action: Action) -> tuple[str, ToolOutcome]:
        if isinstance(action, Malformed):
            self._malformed += 1
            return "", ToolOutcome(f"Error: {action.reason}", "", None, 0.0)
        self._malformed = 0
        if self._time_is_up:  # the rest of a reply with many calls
            return action.name, ToolOutcome("Error: not run, your time is up", "", None, 0.0)
        self.observer.on_call(action.name, _command(action))
        outcome = await self.terminal.call(action.name, action.arguments, self.observer.on_output)
        self._diary.answered(outcome.text, outcome.exit_code, timed_out=outcome.timed_out)
        self.observer.on_result(outcome.raw or outcome.text)
        self._tool_ms += outcome.ms
        self._used_s += outcome.ms / 1000
        return action.name, outcome

    def _observe(self, answers: list[tuple[str, ToolOutcome]], *, closed: bool) -> bool:
        """False, and nothing observed, where the context would have no place left for a reply."""
        messages: list[Message] = [{"role": "tool", "content": outcome.text} for _, outcome in answers]
        ids = self.chat.delta(messages, closed=closed)
        if len(self._tape.token_ids) + len(ids) >= self.settings.context_tokens:
            return False
        self._tape.given(
            TurnKind.OBSERVATION,
            ids,
            tool=",".join(name for name, _ in answers if name),
            exit_code=answers[-1][1].exit_code,
            ms=sum(outcome.ms for _, outcome in answers),
        )
        return True


def _has_malformed(actions: Final | Sequence[Action]) -> bool:
    return not isinstance(actions, Final) and any(isinstance(action, Malformed) for action in actions)


def _command(call: ToolCall) -> str:
    command = call.arguments.get("command")
    return command if isinstance(command, str) else f"{call.name}({call.arguments})"
