"""The agent's loop: sample a reply, parse it, run its tools, append the observation, until a limit or the end.

The loop knows neither the model behind its :class:`actors.rollout.policy.Policy` nor the sandbox behind its
:class:`actors.rollout.terminal.EpisodeTerminal`.  The agent's time counts tool execution and sampled tokens at a
nominal rate, not queueing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from actors.agents.agent import ActionOutcome, Agent, AgentAction, AgentToolCall, MalformedAction, ParsedReply
from actors.rewards.episode_result import EpisodeTranscript, make_call_record
from actors.rollout.observer import EpisodeObserver
from actors.rollout.policy import ContextFullError, Policy, PolicyCompletion
from actors.rollout.settings import EpisodeSettings
from actors.rollout.terminal import EpisodeTerminal
from actors.tokens.segment_tree import ObservationSource
from protocol.processes.cancellation import call_in_thread
from protocol.trajectory import EpisodeStatus
from sandbox.tasks.task import Task

_DESCRIPTIVE_ARGUMENTS = ("command", "code", "keystrokes")
"""Arguments that describe a call to a reader."""


@dataclass(slots=True)
class AgentLoop:
    """One episode of an agent, whose limits hold for all steps of its task together.

    ``play`` is called once for each step; the other fields can be read while it runs and after it was cancelled."""

    agent: Agent
    open_policy: Callable[[Task], Policy]
    """Opens the policy of a step, whose history begins anew."""
    terminal: EpisodeTerminal
    settings: EpisodeSettings
    observer: EpisodeObserver
    transcript: EpisodeTranscript = field(default_factory=EpisodeTranscript)
    prompt_tokens: int = 0
    """Number of prompt tokens, summed over all turns."""
    sampled_tokens: int = 0
    generate_ms: float = 0.0
    tool_ms: float = 0.0
    _used_s: float = 0.0
    """Agent time used so far."""
    _time_is_up_at_s: float = 0.0
    """Agent time at which that of the step has been used."""
    _malformed_in_a_row: int = 0

    async def play(self, task: Task) -> EpisodeStatus:
        """Run until the agent finishes its task, or a step of it, or reaches a limit.

        Raises InfraError and SandboxDestroyedByAgent."""
        self._time_is_up_at_s = min(self._used_s + task.agent_timeout_s, self.settings.time_limit_s)
        self._malformed_in_a_row = 0
        policy = await call_in_thread(lambda: self.open_policy(task))  # a long task takes long to tokenize
        limit = self.settings.max_new_tokens
        for turn in range(len(self.transcript.turns), self.settings.max_turns):
            room = policy.remaining_tokens
            if room < 1:
                return EpisodeStatus.CONTEXT_LIMIT
            try:
                completion = await self._sample_reply(policy, turn, min(limit, room))
            except ContextFullError:
                return EpisodeStatus.CONTEXT_LIMIT
            reply = self.agent.parse_reply(policy.reply_prefix + completion.text)
            if completion.finish == "length" and (reply.final or not reply.has_calls):
                if room <= limit:
                    self._commit_reply(policy, completion, ParsedReply([]), malformed=True)
                    return EpisodeStatus.CONTEXT_LIMIT
                if reply.final:
                    reply = ParsedReply([MalformedAction(f"the reply was cut after {completion.tokens} tokens")])
            self._commit_reply(policy, completion, reply, malformed=reply.is_malformed)
            if (status := await self._run_actions(policy, reply)) is not None:
                return status
        return EpisodeStatus.TURN_LIMIT

    @property
    def _time_is_up(self) -> bool:
        return self._used_s >= self._time_is_up_at_s

    async def _sample_reply(self, policy: Policy, turn: int, max_new_tokens: int) -> PolicyCompletion:
        completion = await policy.complete(turn, max_new_tokens)
        self.prompt_tokens += completion.prompt_tokens
        self.sampled_tokens += completion.tokens
        self.generate_ms += completion.ms
        self._used_s += completion.tokens / self.settings.nominal_tokens_per_s
        self.observer.on_turn(turn, completion.text, completion.tokens, completion.versions, completion.ms)
        return completion

    def _commit_reply(
        self, policy: Policy, completion: PolicyCompletion, reply: ParsedReply, *, malformed: bool
    ) -> None:
        policy.commit_reply(malformed=malformed)
        calls = [
            make_call_record(each.name, each.arguments) for each in reply.actions if isinstance(each, AgentToolCall)
        ]
        self.transcript.add_turn(completion.text, calls[: self.settings.max_calls or None], malformed=malformed)

    async def _run_actions(self, policy: Policy, reply: ParsedReply) -> EpisodeStatus | None:
        """Run the reply's actions and append their outcomes to the history; return the status if the episode ended."""
        late = self._time_is_up
        outcomes: list[ActionOutcome] = []
        for action in reply.actions:
            calls_before = sum(isinstance(outcome.action, AgentToolCall) for outcome in outcomes)
            outcomes.append(await self._run_action(policy, action, calls_before))
        if reply.final:
            return EpisodeStatus.TIME_LIMIT if late and outcomes else EpisodeStatus.COMPLETED
        messages = self.agent.format_outcomes(outcomes)
        if messages is None:
            return EpisodeStatus.COMPLETED
        source = _observation_source(outcomes)
        fits = await call_in_thread(lambda: policy.append_observation(messages, source))
        if self._malformed_in_a_row >= self.settings.max_malformed:
            return EpisodeStatus.MALFORMED_LIMIT
        if self._time_is_up:
            return EpisodeStatus.TIME_LIMIT
        return None if fits else EpisodeStatus.CONTEXT_LIMIT

    async def _run_action(self, policy: Policy, action: AgentAction, calls_before: int) -> ActionOutcome:
        """Run one action; ``calls_before`` is the number of calls before it in the same reply."""
        if isinstance(action, MalformedAction):
            self._malformed_in_a_row += 1
            return ActionOutcome(action, f"Error: {action.reason}")
        self._malformed_in_a_row = 0
        if self._time_is_up:  # the remaining calls of a reply with many
            return ActionOutcome(action, "Error: not run, your time is up", ran=False)
        if 0 < self.settings.max_calls <= calls_before:
            limit = self.settings.max_calls
            return ActionOutcome(action, f"Error: not run, as at most {limit} of a reply's calls are", ran=False)
        self.observer.on_call(action.name, _describe_call(action))
        result = await self.terminal.call(action.name, action.arguments, self.observer.on_output)
        limit = self.settings.observation_tokens
        text = policy.truncate_text(result.text, limit) if limit else result.text
        self.transcript.add_tool_result(text, result.exit_code, timed_out=result.timed_out)
        self.observer.on_result(result.raw or result.text)
        if result.picture is not None:
            self.observer.on_picture(result.picture)
        self.tool_ms += result.ms
        self._used_s += result.ms / 1000
        return ActionOutcome(action, text, result.raw, result.exit_code, result.ms)


def _observation_source(outcomes: list[ActionOutcome]) -> ObservationSource:
    tools = [each.action.name for each in outcomes if isinstance(each.action, AgentToolCall) and each.ran]
    return ObservationSource(",".join(tools), outcomes[-1].exit_code, sum(each.ms for each in outcomes))


def _describe_call(call: AgentToolCall) -> str:
    described = (call.arguments.get(name) for name in _DESCRIPTIVE_ARGUMENTS)
    return next((each for each in described if isinstance(each, str)), f"{call.name}({call.arguments})")
