"""One harness, one task, one trajectory: a third-party agent process in the sandbox that samples through the gateway.

Its environment holds the task's instruction, and the addresses and the key that OpenAI's and Anthropic's clients read.
It ends by itself (``completed``), when its time is up, or at a limit of its session, and is then graded like any agent.
It is started anew for each step of a task, with the step's instruction; the session and its limits are those of all.
Waiting for the policy does not count as its time.  A harness that never called the policy, or whose last call failed
because no engine was available, is an infrastructure failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from actors.engines.messages import GenerateReply
from actors.gateway.session import GatewaySession, OnReply
from actors.harnesses.start_command import start_command
from actors.rewards.episode_result import ModelTurn
from actors.rollout.grading import EpisodeContext, SampledEpisode, finish_episode, run_and_grade
from actors.rollout.observer import EpisodeObserver
from actors.rollout.sandbox_terminal import HarnessExit
from actors.rollout.settings import EpisodeSettings
from actors.rollout.terminal import Grader
from protocol.errors import InfraError
from protocol.trajectory import EpisodeStatus, Trajectory
from sandbox.tasks.task import Task

_SUMMARY_CHARS = 500


class HarnessSandbox(Grader, Protocol):
    """The sandbox in which a harness runs."""

    async def run_agent(
        self, command: str, remaining_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> HarnessExit:
        """Run ``command`` until it ends or ``remaining_s()`` is not above 0.  Raises as
        :class:`~actors.rollout.terminal.Grader` does."""
        ...

    def record_commands(self, commands: Iterable[str]) -> None:
        """Record the commands that the harness ran, which are read for signs of cheating."""
        ...


class HarnessSession(Protocol):
    """The session through which a harness calls the policy."""

    @property
    def waited_s(self) -> float:
        """Seconds so far during which at least one call was in flight."""
        ...

    @property
    def sampled_tokens(self) -> int: ...

    @property
    def limit(self) -> EpisodeStatus | None:
        """The limit that refused the last call."""
        ...

    @property
    def last_error(self) -> InfraError | None:
        """The error of the last call; None if it was answered."""
        ...

    def all_turns(self) -> Sequence[ModelTurn]:
        """Return the turns of all replies so far, work or not; each keeps its place."""
        ...

    def begin_step(self) -> None:
        """Accept calls of the task's next step, also after :meth:`close`."""
        ...

    def close(self) -> None:
        """Accept no further call."""
        ...


def harness_environment(url: str, key: str, model: str, task: Task, settings: EpisodeSettings) -> dict[str, str]:
    """Return a harness's environment; the two official clients and most harnesses read the first five variables."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "OPENAI_MODEL": model,
        "LONGSHORE_INSTRUCTION": task.instruction,
        "LONGSHORE_CONTEXT_TOKENS": str(settings.context_tokens),
        "LONGSHORE_MAX_NEW_TOKENS": str(settings.max_new_tokens),
    }


def make_reply_callback(observer: EpisodeObserver) -> OnReply:
    """Return a callback that shows the replies of a gateway session to an observer."""

    def on_reply(turn: int, text: str, reply: GenerateReply) -> None:
        observer.on_turn(turn, text, len(reply.token_ids), (min(reply.versions), max(reply.versions)), reply.ms)

    return on_reply


@dataclass(slots=True)
class HarnessRun:
    """The runs of a harness on the steps of one task."""

    session: HarnessSession
    sandbox: HarnessSandbox
    command: str
    open_gateway: Callable[[Task], AbstractAsyncContextManager[Mapping[str, str]]]
    """Opens a context in which the sandbox can reach the policy; it yields the harness's environment for a step."""
    settings: EpisodeSettings
    observer: EpisodeObserver
    clock: Callable[[], float] = time.monotonic
    agent_s: float = 0.0
    """Seconds of the agent's time, sampling excluded."""
    exit_summary: str = ""
    """How the process ended, and its last output."""

    async def play(self, task: Task) -> EpisodeStatus:
        """Run until the process ends or its time is up: the task's or step's own, or the run's for all steps.

        Raises InfraError, SandboxDestroyedByAgent."""
        session = self.session
        begun_s = self.clock() - self.agent_s - session.waited_s

        def acted_s() -> float:
            return self.clock() - begun_s - session.waited_s

        def used_s() -> float:
            return acted_s() + session.sampled_tokens / self.settings.nominal_tokens_per_s

        limit_s = min(used_s() + task.agent_timeout_s, self.settings.time_limit_s)
        session.begin_step()
        earlier = len(session.all_turns())
        self.observer.on_call("harness", self.command)
        try:
            async with self.open_gateway(task) as environment:
                command = start_command(self.command, environment)
                ended = await self.sandbox.run_agent(command, lambda: limit_s - used_s(), self.observer.on_output)
        finally:
            session.close()
            self.agent_s = acted_s()
            self.sandbox.record_commands(call.command for turn in session.all_turns()[earlier:] for call in turn.calls)
        self.observer.on_result(ended.output)
        how = f"its time of {limit_s:g} s was up" if ended.timed_out else f"exit code {ended.exit_code}"
        self.exit_summary = f"{how}, {ended.output[-_SUMMARY_CHARS:]!r}"
        if session.last_error is not None:
            raise session.last_error
        if ended.timed_out:
            return EpisodeStatus.TIME_LIMIT
        return session.limit or EpisodeStatus.COMPLETED


def no_reply_error(why: str) -> InfraError:
    """Return the error of a harness that ended without a reply from the policy."""
    return InfraError(f"the harness ended without a reply from the policy: {why}")


async def run_harness_episode(context: EpisodeContext, run: HarnessRun, session: GatewaySession) -> Trajectory:
    """Run one request to its end with a harness.  Raises :class:`InfraError` if infrastructure failed."""
    graded = await run_and_grade(run.play, run.sandbox, context.task, lambda: session.last_content, context.deadlines)
    if not (segments := session.segments()):
        raise no_reply_error(run.exit_summary or graded.error)
    record = SampledEpisode(
        turns=session.turns(),
        segments=segments,
        turn_order=session.turn_order,
        engine=session.engine,
        timings_ms={"generate": session.generate_ms, "tool": run.agent_s * 1000},
    )
    return await finish_episode(context, graded, record)
