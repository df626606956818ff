"""One harness, one task, one trajectory: an agent process of somebody's in the sandbox, which asks the gateway.

The process gets the addresses and the key that OpenAI's and Anthropic's clients look for in their environment, and the
task's instruction; what it does with them is its own.  It ends by itself (``completed``), when its time is up, or after
a limit of its session: then it is graded as any agent is.  The time that it waits for the policy is no time of its own.
One that ends without having asked the policy, or after its last question was not answered for want of an engine, is
infrastructure's failure.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from actors.engines.messages import GenerateReply
from actors.gateway.session import GatewaySession, GatewaySessionSettings, OnReply
from actors.rewards.composite import apply_reward
from actors.rollout.episode import EpisodeObserver, EpisodeSettings, Gradable, run_and_grade
from actors.rollout.stages import NO_DEADLINES, StageDeadlines
from protocol.errors import InfraError
from protocol.trajectory import EpisodeStatus, RolloutRequest, Trajectory
from sandbox.tasks.task import Task

_LAST_CHARS = 500


@dataclass(frozen=True, slots=True)
class HarnessSettings:
    command: str
    """For the sandbox's shell."""
    port: int
    """Of the sandbox's loopback, where the gateway is reached."""


class HarnessExit(NamedTuple):
    """A harness that has ended."""

    exit_code: int | None
    """As the sandbox's shell reported it, for people to read; None where it was killed."""
    output: str
    timed_out: bool = False


class HarnessSandbox(Gradable, Protocol):
    """Where a harness runs."""

    async def run_agent(
        self, command: str, left_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> HarnessExit:
        """Run ``command`` to its end, or until ``left_s()`` is no more than 0.  Raises as :class:`Gradable` does."""
        ...


def harness_environment(url: str, key: str, model: str, task: Task) -> dict[str, str]:
    """What a harness is told; the first five are names that the two official clients and most harnesses read."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "OPENAI_MODEL": model,
        "LONGSHORE_INSTRUCTION": task.instruction,
    }


def make_session_settings(settings: EpisodeSettings, request: RolloutRequest) -> GatewaySessionSettings:
    """The limits of an episode, for a harness: all segments together are within what its trajectory may hold."""
    return GatewaySessionSettings(
        max_replies=settings.max_turns,
        max_new_tokens=settings.max_new_tokens,
        context_tokens=settings.context_tokens,
        max_tokens=settings.context_tokens,
        temperature=settings.sampling_temperature(request),
        seed=request.seed,
        greedy=request.greedy,
        generate_deadline_s=settings.generate_deadline_s,
        engine_restart_s=settings.engine_restart_s,
    )


def make_reply_callback(observer: EpisodeObserver) -> OnReply:
    """Shows an observer what a session's policy says."""

    def told(turn: int, text: str, reply: GenerateReply) -> None:
        observer.on_turn(turn, text, len(reply.token_ids), (min(reply.versions), max(reply.versions)), reply.ms)

    return told


class HarnessSession(Protocol):
    """By which a harness asks the policy."""

    @property
    def waited_s(self) -> float:
        """How long some call has been under way, until now."""
        ...

    @property
    def sampled_tokens(self) -> int: ...

    @property
    def limit(self) -> EpisodeStatus | None:
        """Which limit refused its last call."""
        ...

    @property
    def last_error(self) -> InfraError | None:
        """Why its last call was not answered."""
        ...

    def close(self) -> None:
        """No call is taken any more."""
        ...


@dataclass(slots=True)
class HarnessRun:
    """A harness at work on a task.  ``run`` may be called once."""

    task: Task
    session: HarnessSession
    sandbox: HarnessSandbox
    command: str
    gateway_access: AbstractAsyncContextManager[Mapping[str, str]]
    """Open, the policy can be reached from the place, in the environment that this gives."""
    settings: EpisodeSettings
    observer: EpisodeObserver
    clock: Callable[[], float] = time.monotonic
    agent_s: float = 0.0
    exit_summary: str = ""
    """For people to read."""

    async def run(self) -> EpisodeStatus:
        """Until it has ended, or its time is up.  Raises InfraError and SandboxGone."""
        line, begun = self.session, self.clock()
        limit_s = min(self.task.agent_timeout_s, self.settings.time_limit_s)

        def acted_s() -> float:
            return self.clock() - begun - line.waited_s

        def left_s() -> float:
            return limit_s - acted_s() - line.sampled_tokens / self.settings.nominal_tokens_per_s

        self.observer.on_call("harness", self.command)
        try:
            async with self.gateway_access as env:
                exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())
                command = f"(export {exports}; eval {shlex.quote(self.command)})"
                ran = await self.sandbox.run_agent(command, left_s, self.observer.on_output)
        finally:
            line.close()
            self.agent_s = acted_s()
        self.observer.on_result(ran.output)
        self.exit_summary = f"exit code {ran.exit_code}, {ran.output[-_LAST_CHARS:]!r}"
        if line.last_error is not None:
            raise line.last_error
        if ran.timed_out:
            return EpisodeStatus.TIME_LIMIT
        return line.limit or EpisodeStatus.COMPLETED


def no_reply_error(why: str) -> InfraError:
    """Of a harness that ended without having had a reply."""
    return InfraError(f"the harness ended without an answer of the policy's: {why}")


@dataclass(slots=True)
class HarnessEpisode:
    """Runs one ticket to its end.  ``run`` may be called once."""

    request: RolloutRequest
    task: Task
    session: GatewaySession
    sandbox: HarnessSandbox
    command: str
    gateway_access: AbstractAsyncContextManager[Mapping[str, str]]
    """Open, the gateway can be reached from the place, in the environment that this gives."""
    settings: EpisodeSettings
    observer: EpisodeObserver
    deadlines: StageDeadlines = NO_DEADLINES
    clock: Callable[[], float] = time.monotonic

    async def run(self) -> Trajectory:
        """The finished trajectory.  Raises :class:`InfraError` when infrastructure failed."""
        session = self.session
        acting = HarnessRun(
            self.task,
            session,
            self.sandbox,
            self.command,
            self.gateway_access,
            self.settings,
            self.observer,
            self.clock,
        )
        ended = await run_and_grade(acting.run(), self.sandbox, self.task, lambda: session.last_content, self.deadlines)
        if not (segments := session.segments()):
            raise no_reply_error(ended.error or acting.exit_summary)
        played = ended.to_result(self.task, session.turns(), segments)
        reward, segments = await apply_reward(self.settings.reward, played, segments, session.turn_order)
        self.observer.on_grade(ended.grade, reward)
        timings_ms = {"generate": session.generate_ms, "tool": acting.agent_s * 1000}
        return ended.to_trajectory(self.request, reward, segments, session.engine, timings_ms)
