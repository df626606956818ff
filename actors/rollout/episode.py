"""One agent, one task, one trajectory.  No Ray, no socket, no clock of its own.

The loop: prompt ids → sampled ids, appended as they are → the agent reads actions in them → run the tools → append the
observation's ids with mask 0 → … → grade → reward.  It ends in a :class:`Trajectory` whose status says what the
*policy* did, or it raises :class:`InfraError`, after which the worker gives the ticket back.  Nothing is trained that
was not sampled by the engine, and no token is re-tokenised, unless the history is to be rendered anew
(:mod:`actors.tokens.prompt_context`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from actors.agents.agent import ActionOutcome, Agent, AgentAction, AgentToolCall, MalformedAction, ParsedReply
from actors.agents.settings import HistoryMode
from actors.engines.messages import GenerateFunction
from actors.rewards.composite import BINARY_REWARD, RewardFunction, apply_reward
from actors.rewards.episode_result import EpisodeResult, EpisodeTranscript, ModelTurn, make_call_record
from actors.rollout.policy import ContextFullError, EpisodeSampling, Policy, PolicyCompletion, TokenPolicy
from actors.rollout.stages import NO_DEADLINES, StageDeadlines, run_stage
from actors.tokens.chat_format import ChatFormat, ChatMessage
from actors.tokens.prompt_context import PromptContext, RenderedContext, RenderingLimits, WholeContext
from actors.tokens.segment_tree import ObservationSource
from protocol.trajectory import TRAIN_PURPOSE, EpisodeStatus, Reward, RolloutRequest, Segment, TestResult, Trajectory
from sandbox.grading.math_answer import ANSWER_TEST, is_right_answer
from sandbox.tasks.task import Task


@dataclass(frozen=True, slots=True)
class ToolCallResult:
    """What a tool answered.  ``text`` goes to the agent, ``raw`` to the recording; ``ms`` counts against its time."""

    text: str
    raw: str
    exit_code: int | None
    ms: float
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class EpisodeGrade:
    tests: tuple[TestResult, ...]
    pass_ratio: float
    all_passed: bool
    ms: float
    suspicious: tuple[str, ...] = ()
    """Of a full pass: what a person should read, one line each."""
    score: float = 0.0
    """Weight of what passed ÷ weight of all; the tests' own reward where that is all that they wrote."""


class SandboxDestroyedByAgent(Exception):
    """The agent destroyed its own sandbox while daemon, host and pool were healthy."""


class EpisodeTerminal(Protocol):
    """What an episode needs of a sandbox.  Methods raise :class:`SandboxGone` when the agent destroyed it, and
    :class:`InfraError` when anything else took it away."""

    async def call(
        self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]
    ) -> ToolCallResult: ...
    async def grade(self) -> EpisodeGrade: ...


class Gradable(Protocol):
    """Raises as :class:`Terminal` does."""

    async def grade(self) -> EpisodeGrade: ...


class GradedEpisode(NamedTuple):
    status: EpisodeStatus
    grade: EpisodeGrade
    error: str
    """One line for a person: why the status is not ``completed``."""

    def to_result(self, task: Task, turns: Sequence[ModelTurn], segments: Sequence[Segment]) -> EpisodeResult:
        """What its reward is taken of."""
        graded = self.grade
        return EpisodeResult(
            task.instruction,
            self.status,
            graded.tests,
            graded.pass_ratio,
            graded.all_passed,
            graded.score,
            tuple(turns),
            sum(int(segment.loss_mask.sum()) for segment in segments),
        )

    def to_trajectory(
        self,
        request: RolloutRequest,
        reward: Reward,
        segments: tuple[Segment, ...],
        engine: str,
        timings_ms: dict[str, float],
    ) -> Trajectory:
        return Trajectory(
            request,
            self.status,
            reward,
            segments,
            tests=self.grade.tests,
            engine=engine,
            timings_ms={**timings_ms, "grade": self.grade.ms},
            error=self.error,
        )


async def run_and_grade(
    agent_run: Coroutine[None, None, EpisodeStatus],
    gradable: Gradable,
    task: Task,
    last_content: Callable[[], str],
    deadlines: StageDeadlines,
) -> GradedEpisode:
    """Let the agent act, then grade: by its last words where the task asks for an answer, else by the task's tests.  An
    agent that destroyed its sandbox failed each test.  Raises StageOverrun."""
    try:
        async with run_stage("agent", deadlines.agent):
            status = await agent_run
        async with run_stage("evaluate", deadlines.evaluate):
            graded = _grade_answer(task.answer, last_content()) if task.answer else await gradable.grade()
    except SandboxDestroyedByAgent as gone:
        failed = tuple(TestResult(name, False) for name in ((ANSWER_TEST,) if task.answer else task.expected_tests))
        return GradedEpisode(EpisodeStatus.SANDBOX_DESTROYED, EpisodeGrade(failed, 0.0, False, 0.0), str(gone))
    error = "" if status is EpisodeStatus.COMPLETED else f"ended by its {status.value.replace('_', ' ')}"
    return GradedEpisode(status, graded, error)


def _grade_answer(wanted: str, last_words: str) -> EpisodeGrade:
    right = is_right_answer(last_words, wanted)
    return EpisodeGrade((TestResult(ANSWER_TEST, right),), float(right), right, 0.0, score=float(right))


class EpisodeObserver(Protocol):
    """Sees the episode as it happens: recordings and telemetry.  Must not raise."""

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None:
        """``ms``: from the request to the engine's whole reply."""

    def on_call(self, name: str, command: str) -> None: ...
    def on_output(self, text: str) -> None:
        """A part of the call's output, as it comes; a tool need not give any before its end."""

    def on_result(self, output: str) -> None: ...
    def on_grade(self, graded: EpisodeGrade, reward: Reward) -> None: ...


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
    reward: RewardFunction = BINARY_REWARD
    observation_tokens: int = 0
    """Of what a tool answers, the most that the agent reads: the first and the last; 0 for all of it."""
    max_calls: int = 0
    """Calls of one reply that are run; the others are answered.  0 for all."""
    history: HistoryMode = HistoryMode.WHOLE
    total_tokens: int = 0
    """Of all segments of a history that is rendered anew; 0 for as many as its turns may have."""
    head_share: float = 0.3
    """Of a dynamic history that is too long, the part of what is kept that is its beginning."""
    evaluation_temperature: float = 1.0
    """That of pass@1, whatever a run trains at."""

    def make_context(self, chat: ChatFormat, opening: list[ChatMessage]) -> PromptContext:
        """Of an episode that begins with ``opening``."""
        if self.history is HistoryMode.WHOLE:
            return WholeContext(chat, opening, context_tokens=self.context_tokens)
        trimmed = self.context_tokens - self.max_new_tokens
        rendering = RenderingLimits(
            context_tokens=self.context_tokens,
            total_tokens=self.total_tokens or self.max_turns * self.context_tokens,
            prompt_tokens=trimmed if self.history is HistoryMode.DYNAMIC else self.context_tokens,
            head_share=self.head_share,
        )
        return RenderedContext(chat, opening, rendering)

    def make_sampling(self, request: RolloutRequest) -> EpisodeSampling:
        """How each of its turns is asked for."""
        return EpisodeSampling(
            temperature=self.sampling_temperature(request),
            seed=request.seed,
            greedy=request.greedy,
            session=request.attempt_id,
            deadline_s=self.generate_deadline_s,
            restart_s=self.engine_restart_s,
        )

    def sampling_temperature(self, request: RolloutRequest) -> float:
        return self.temperature if request.purpose == TRAIN_PURPOSE else self.evaluation_temperature


@dataclass(slots=True)
class AgentLoop:
    """An agent's loop with whatever answers it.  ``run`` may be called once; what it has come to can be read while it
    runs, and after it was broken off."""

    task: Task
    agent: Agent
    policy: Policy
    terminal: EpisodeTerminal
    settings: EpisodeSettings
    observer: EpisodeObserver
    transcript: EpisodeTranscript = field(default_factory=EpisodeTranscript)
    prompt_tokens: int = 0
    """Of all prompts together."""
    sampled_tokens: int = 0
    generate_ms: float = 0.0
    tool_ms: float = 0.0
    _used_s: float = 0.0
    _malformed: int = 0

    async def run(self) -> EpisodeStatus:
        """Until the agent has finished, or a limit is reached.  Raises InfraError and SandboxGone."""
        for turn in range(self.settings.max_turns):
            room = self.policy.remaining_tokens
            if room < 1:
                return EpisodeStatus.CONTEXT_LIMIT
            try:
                said = await self._sample_reply(turn, min(self.settings.max_new_tokens, room))
            except ContextFullError:
                return EpisodeStatus.CONTEXT_LIMIT
            reading = self.agent.parse_reply(self.policy.reply_prefix + said.text)
            calls = any(isinstance(action, AgentToolCall) for action in reading.actions)
            if said.finish == "length" and (reading.final or not calls):
                if room <= self.settings.max_new_tokens:
                    self._commit_reply(said, ParsedReply([]), malformed=True)
                    return EpisodeStatus.CONTEXT_LIMIT
                if reading.final:
                    reading = ParsedReply([MalformedAction(f"the reply was cut after {said.tokens} tokens")])
            malformed = any(isinstance(action, MalformedAction) for action in reading.actions)
            self._commit_reply(said, reading, malformed=malformed)
            if (ended := await self._run_actions(reading)) is not None:
                return ended
        return EpisodeStatus.TURN_LIMIT

    @property
    def _time_is_up(self) -> bool:
        return self._used_s >= min(self.task.agent_timeout_s, self.settings.time_limit_s)

    async def _sample_reply(self, turn: int, max_new_tokens: int) -> PolicyCompletion:
        said = await self.policy.complete(turn, max_new_tokens)
        self.prompt_tokens += said.prompt_tokens
        self.sampled_tokens += said.tokens
        self.generate_ms += said.ms
        self._used_s += said.tokens / self.settings.nominal_tokens_per_s
        self.observer.on_turn(turn, said.text, said.tokens, said.versions, said.ms)
        return said

    def _commit_reply(self, said: PolicyCompletion, reading: ParsedReply, *, malformed: bool) -> None:
        self.policy.commit_reply(malformed=malformed)
        calls = [
            make_call_record(each.name, each.arguments) for each in reading.actions if isinstance(each, AgentToolCall)
        ]
        self.transcript.add_turn(said.text, calls[: self.settings.max_calls or None], malformed=malformed)

    async def _run_actions(self, reading: ParsedReply) -> EpisodeStatus | None:
        """Act as the reply says, and tell the policy what became of it; or how the episode has ended."""
        late = self._time_is_up
        done: list[ActionOutcome] = []
        for action in reading.actions:
            done.append(
                await self._run_action(action, calls=sum(isinstance(other.action, AgentToolCall) for other in done))
            )
        if reading.final:
            return EpisodeStatus.TIME_LIMIT if late and done else EpisodeStatus.COMPLETED
        messages = self.agent.format_outcomes(done)
        if messages is None:
            return EpisodeStatus.COMPLETED
        fits = self.policy.append_observation(messages, _observation_source(done))
        if self._malformed >= self.settings.max_malformed:
            return EpisodeStatus.MALFORMED_LIMIT
        if self._time_is_up:
            return EpisodeStatus.TIME_LIMIT
        return None if fits else EpisodeStatus.CONTEXT_LIMIT

    async def _run_action(self, action: AgentAction, *, calls: int) -> ActionOutcome:
        """``calls`` of its reply were before it."""
        if isinstance(action, MalformedAction):
            self._malformed += 1
            return ActionOutcome(action, f"Error: {action.reason}")
        self._malformed = 0
        if self._time_is_up:  # the rest of a reply with many calls
            return ActionOutcome(action, "Error: not run, your time is up", ran=False)
        if 0 < self.settings.max_calls <= calls:
            most = self.settings.max_calls
            return ActionOutcome(action, f"Error: not run, as at most {most} of a reply's calls are", ran=False)
        self.observer.on_call(action.name, _shown_command(action))
        answer = await self.terminal.call(action.name, action.arguments, self.observer.on_output)
        text = self._truncate_observation(answer.text)
        self.transcript.add_tool_result(text, answer.exit_code, timed_out=answer.timed_out)
        self.observer.on_result(answer.raw or answer.text)
        self.tool_ms += answer.ms
        self._used_s += answer.ms / 1000
        return ActionOutcome(action, text, answer.raw, answer.exit_code, answer.ms)

    def _truncate_observation(self, text: str) -> str:
        most = self.settings.observation_tokens
        return self.policy.truncate_text(text, most) if most else text


@dataclass(slots=True)
class AgentEpisode:
    """Runs one ticket to its end, token by token.  ``run`` may be called once."""

    request: RolloutRequest
    task: Task
    agent: Agent
    chat: ChatFormat
    generate: GenerateFunction
    terminal: EpisodeTerminal
    settings: EpisodeSettings
    observer: EpisodeObserver
    deadlines: StageDeadlines = NO_DEADLINES

    async def run(self) -> Trajectory:
        """The finished trajectory.  Raises :class:`InfraError` when infrastructure failed."""
        context = self.settings.make_context(self.chat, self.agent.opening_messages(self.task))
        policy = TokenPolicy(self.chat, context, self.generate, self.settings.make_sampling(self.request))
        acting = AgentLoop(self.task, self.agent, policy, self.terminal, self.settings, self.observer)
        ended = await run_and_grade(
            acting.run(), self.terminal, self.task, lambda: acting.transcript.last_content, self.deadlines
        )
        segments = context.segments()
        played = ended.to_result(self.task, acting.transcript.turns, segments)
        reward, segments = await apply_reward(self.settings.reward, played, segments, context.turn_order)
        self.observer.on_grade(ended.grade, reward)
        timings_ms = {"generate": acting.generate_ms, "tool": acting.tool_ms}
        return ended.to_trajectory(self.request, reward, segments, policy.engine, timings_ms)


def _observation_source(done: list[ActionOutcome]) -> ObservationSource:
    tools = [outcome.action.name for outcome in done if isinstance(outcome.action, AgentToolCall) and outcome.ran]
    return ObservationSource(",".join(tools), done[-1].exit_code, sum(outcome.ms for outcome in done))


_SHOWN = ("command", "code", "keystrokes")
"""Arguments that say what a call does."""


def _shown_command(call: AgentToolCall) -> str:
    said = (call.arguments.get(name) for name in _SHOWN)
    return next((each for each in said if isinstance(each, str)), f"{call.name}({call.arguments})")
