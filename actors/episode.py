"""One agent, one task, one trajectory.  No Ray, no socket, no clock of its own.

The loop: prompt ids → sampled ids, appended as they are → the agent reads actions in them → run the tools → append the
observation's ids with mask 0 → … → grade → reward.  It ends in a :class:`Trajectory` whose status says what the
*policy* did, or it raises :class:`InfraError`, after which the worker gives the ticket back.  Nothing is trained that
was not sampled by the engine, and no token is re-tokenised, unless the history is to be rendered anew
(:mod:`actors.context`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from actors.agents.agent import Action, Agent, Malformed, Outcome, Reading, ToolCall
from actors.agents.chat import ChatFormat, Message
from actors.agents.settings import History
from actors.branches import Noted
from actors.context import Context, RenderedContext, Rendering, WholeContext
from actors.engines.messages import Generate
from actors.policy import NoRoom, Policy, Said, Sampling, TokenPolicy
from actors.rewards.played import Diary, ModelTurn, Played, call_of
from actors.rewards.rewarding import PLAIN, Rewarding, rewarded
from actors.stages import NO_DEADLINES, Deadlines, stage
from actors.tickets import name_of
from protocol.trajectory import TRAIN, Reward, Segment, Status, TestResult, Ticket, Trajectory
from sandbox.grading.answer import ANSWER, is_right
from sandbox.tasks.task import Task


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
    acting: Coroutine[None, None, Status],
    place: Gradable,
    task: Task,
    last_words: Callable[[], str],
    deadlines: Deadlines,
) -> Ended:
    """Let the agent act, then grade: by its last words where the task asks for an answer, else by the task's tests.  An
    agent that destroyed its sandbox failed each test.  Raises StageOverrun."""
    try:
        async with stage("agent", deadlines.agent):
            status = await acting
        async with stage("evaluate", deadlines.evaluate):
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
    max_turns: int
    max_malformed: int
    max_new_tokens: int
    """Tokens a turn at most."""
    context_tokens: int
    """Of the whole episode: where an observation would leave no place for a reply, it ends instead."""
    temperature: float
    """In training; evaluations sample at one of their own."""
    generate_deadline_s: float
    engine_restart_s: float
    """How long a turn may wait beside for an engine that starts again."""
    nominal_tokens_per_s: float
    """A sampled token costs the agent 1 ÷ this many seconds of its time, however busy the engine was."""
    time_limit_s: float
    """The agent's own time, unless its task allows less."""
    reward: Rewarding = PLAIN
    observation_tokens: int = 0
    """Of what a tool answers, the most that the agent reads: the first and the last; 0 for all of it."""
    max_calls: int = 0
    """Calls of one reply that are run; the others are answered.  0 for all."""
    history: History = History.WHOLE
    total_tokens: int = 0
    """Of all segments of a history that is rendered anew; 0 for as many as its turns may have."""
    head_share: float = 0.3
    """Of a dynamic history that is too long, the part of what is kept that is its beginning."""
    evaluation_temperature: float = 1.0
    """That of pass@1, whatever a run trains at."""

    def context(self, chat: ChatFormat, opening: list[Message]) -> Context:
        """Of an episode that begins with ``opening``."""
        if self.history is History.WHOLE:
            return WholeContext(chat, opening, context_tokens=self.context_tokens)
        trimmed = self.context_tokens - self.max_new_tokens
        rendering = Rendering(
            context_tokens=self.context_tokens,
            total_tokens=self.total_tokens or self.max_turns * self.context_tokens,
            prompt_tokens=trimmed if self.history is History.DYNAMIC else self.context_tokens,
            head_share=self.head_share,
        )
        return RenderedContext(chat, opening, rendering)

    def sampling(self, ticket: Ticket) -> Sampling:
        """How each of its turns is asked for."""
        return Sampling(
            temperature=self.temperature_of(ticket),
            seed=ticket.seed,
            greedy=ticket.greedy,
            session=name_of(ticket),
            deadline_s=self.generate_deadline_s,
            restart_s=self.engine_restart_s,
        )

    def temperature_of(self, ticket: Ticket) -> float:
        return self.temperature if ticket.purpose == TRAIN else self.evaluation_temperature


@dataclass(slots=True)
class Acting:
    """An agent's loop with whatever answers it.  ``run`` may be called once; what it has come to can be read while it
    runs, and after it was broken off."""

    task: Task
    agent: Agent
    policy: Policy
    terminal: Terminal
    settings: EpisodeSettings
    observer: Observer
    diary: Diary = field(default_factory=Diary)
    prompt_tokens: int = 0
    """Of all prompts together."""
    sampled_tokens: int = 0
    generate_ms: float = 0.0
    tool_ms: float = 0.0
    _used_s: float = 0.0
    _malformed: int = 0

    async def run(self) -> Status:
        """Until the agent has finished, or a limit is reached.  Raises InfraError and SandboxGone."""
        for turn in range(self.settings.max_turns):
            room = self.policy.room
            if room < 1:
                return Status.CONTEXT_LIMIT
            try:
                said = await self._ask(turn, min(self.settings.max_new_tokens, room))
            except NoRoom:
                return Status.CONTEXT_LIMIT
            reading = self.agent.read(self.policy.begun + said.text)
            calls = any(isinstance(action, ToolCall) for action in reading.actions)
            if said.finish == "length" and (reading.final or not calls):
                if room <= self.settings.max_new_tokens:
                    self._keep(said, Reading([]), malformed=True)
                    return Status.CONTEXT_LIMIT
                if reading.final:
                    reading = Reading([Malformed(f"the reply was cut after {said.tokens} tokens")])
            malformed = any(isinstance(action, Malformed) for action in reading.actions)
            self._keep(said, reading, malformed=malformed)
            if (ended := await self._follow(reading)) is not None:
                return ended
        return Status.TURN_LIMIT

    @property
    def _time_is_up(self) -> bool:
        return self._used_s >= min(self.task.agent_timeout_s, self.settings.time_limit_s)

    async def _ask(self, turn: int, max_new_tokens: int) -> Said:
        said = await self.policy.ask(turn, max_new_tokens)
        self.prompt_tokens += said.prompt_tokens
        self.sampled_tokens += said.tokens
        self.generate_ms += said.ms
        self._used_s += said.tokens / self.settings.nominal_tokens_per_s
        self.observer.on_turn(turn, said.text, said.tokens, said.versions, said.ms)
        return said

    def _keep(self, said: Said, reading: Reading, *, malformed: bool) -> None:
        self.policy.keep(malformed=malformed)
        calls = [call_of(each.name, each.arguments) for each in reading.actions if isinstance(each, ToolCall)]
        self.diary.said(said.text, calls[: self.settings.max_calls or None], malformed=malformed)

    async def _follow(self, reading: Reading) -> Status | None:
        """Act as the reply says, and tell the policy what became of it; or how the episode has ended."""
        late = self._time_is_up
        done: list[Outcome] = []
        for action in reading.actions:
            done.append(await self._act(action, calls=sum(isinstance(other.action, ToolCall) for other in done)))
        if reading.final:
            return Status.TIME_LIMIT if late and done else Status.COMPLETED
        messages = self.agent.tell(done)
        if messages is None:
            return Status.COMPLETED
        fits = self.policy.observed(messages, _noted(done))
        if self._malformed >= self.settings.max_malformed:
            return Status.MALFORMED_LIMIT
        if self._time_is_up:
            return Status.TIME_LIMIT
        return None if fits else Status.CONTEXT_LIMIT

    async def _act(self, action: Action, *, calls: int) -> Outcome:
        """``calls`` of its reply were before it."""
        if isinstance(action, Malformed):
            self._malformed += 1
            return Outcome(action, f"Error: {action.reason}")
        self._malformed = 0
        if self._time_is_up:  # the rest of a reply with many calls
            return Outcome(action, "Error: not run, your time is up", ran=False)
        if 0 < self.settings.max_calls <= calls:
            most = self.settings.max_calls
            return Outcome(action, f"Error: not run, as at most {most} of a reply's calls are", ran=False)
        self.observer.on_call(action.name, _command(action))
        answer = await self.terminal.call(action.name, action.arguments, self.observer.on_output)
        text = self._readable(answer.text)
        self.diary.answered(text, answer.exit_code, timed_out=answer.timed_out)
        self.observer.on_result(answer.raw or answer.text)
        self.tool_ms += answer.ms
        self._used_s += answer.ms / 1000
        return Outcome(action, text, answer.raw, answer.exit_code, answer.ms)

    def _readable(self, text: str) -> str:
        most = self.settings.observation_tokens
        return self.policy.shortened(text, most) if most else text


@dataclass(slots=True)
class Episode:
    """Runs one ticket to its end, token by token.  ``run`` may be called once."""

    ticket: Ticket
    task: Task
    agent: Agent
    chat: ChatFormat
    generate: Generate
    terminal: Terminal
    settings: EpisodeSettings
    observer: Observer
    deadlines: Deadlines = NO_DEADLINES

    async def run(self) -> Trajectory:
        """The finished trajectory.  Raises :class:`InfraError` when infrastructure failed."""
        context = self.settings.context(self.chat, self.agent.opening(self.task))
        policy = TokenPolicy(self.chat, context, self.generate, self.settings.sampling(self.ticket))
        acting = Acting(self.task, self.agent, policy, self.terminal, self.settings, self.observer)
        ended = await until_graded(
            acting.run(), self.terminal, self.task, lambda: acting.diary.last_words, self.deadlines
        )
        segments = context.segments()
        played = ended.played(self.task, acting.diary.turns, segments)
        reward, segments = await rewarded(self.settings.reward, played, segments, context.order)
        self.observer.on_grade(ended.graded, reward)
        timings_ms = {"generate": acting.generate_ms, "tool": acting.tool_ms}
        return ended.trajectory(self.ticket, reward, segments, policy.engine, timings_ms)


def _noted(done: list[Outcome]) -> Noted:
    tools = [outcome.action.name for outcome in done if isinstance(outcome.action, ToolCall) and outcome.ran]
    return Noted(",".join(tools), done[-1].exit_code, sum(outcome.ms for outcome in done))


_SHOWN = ("command", "code", "keystrokes")
"""Arguments that say what a call does."""


def _command(call: ToolCall) -> str:
    said = (call.arguments.get(name) for name in _SHOWN)
    return next((each for each in said if isinstance(each, str)), f"{call.name}({call.arguments})")
