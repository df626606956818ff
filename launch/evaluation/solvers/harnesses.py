"""A harness by its model: a program in the sandbox that asks a served model by the gateway, or a URL by a relay."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from actors.rewards.episode_result import ModelTurn
from actors.rollout.harness import HarnessRun, HarnessSession, harness_environment, no_reply_error
from actors.rollout.observer import EpisodeObserver
from actors.rollout.policy import EpisodeSampling
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.settings import EpisodeSettings, HarnessSettings
from actors.rollout.terminal import SandboxDestroyedByAgent
from actors.workers.harness_runner import HarnessRunner
from launch.evaluation.attempts import AttemptId, AttemptUsage
from launch.evaluation.solvers.api_relay import ApiRelay, OnReply, RelayedReply, RelaySession
from launch.evaluation.solvers.segments_json import segments_as_json
from launch.evaluation.solvers.solver import Solver, SolverRun
from protocol.events import JsonValue
from protocol.trajectory import EpisodeStatus, RolloutRequest, Segment
from protocol.weights import NO_VERSION
from sandbox.docker.network_namespace import PROXY_HOST
from sandbox.tasks.task import Task

BuildRequest = Callable[[AttemptId], RolloutRequest]
BuildSampling = Callable[[AttemptId], EpisodeSampling]


class HarnessConversation(HarnessSession, Protocol):
    """Of what was said on a line, all that is known."""

    @property
    def last_content(self) -> str: ...
    @property
    def prompt_tokens(self) -> int: ...
    def turns(self) -> Sequence[ModelTurn]: ...
    def segments(self) -> Sequence[Segment]: ...


class StartedHarness(NamedTuple):
    agent_loop: HarnessRun
    conversation: HarnessConversation


@dataclass(slots=True)
class HarnessSolverRun:
    """One attempt of a harness."""

    start: Callable[[], AbstractContextManager[StartedHarness]]
    """Opens its line."""
    _conversation: HarnessConversation | None = None

    async def run(self) -> EpisodeStatus:
        with self.start() as (acting, speaker):
            self._conversation = speaker
            try:
                status = await acting.run()
            except SandboxDestroyedByAgent as gone:
                if not speaker.turns():
                    raise no_reply_error(str(gone)) from gone
                raise
        if not speaker.turns():
            raise no_reply_error(acting.exit_summary)
        return status

    @property
    def turns(self) -> Sequence[ModelTurn]:
        return self._conversation.turns() if self._conversation is not None else ()

    @property
    def final_answer(self) -> str:
        return self._conversation.last_content if self._conversation is not None else ""

    @property
    def effort(self) -> AttemptUsage:
        speaker, turns = self._conversation, self.turns
        if speaker is None:
            return AttemptUsage()
        return AttemptUsage(
            turns=len(turns),
            calls=sum(turn.tool_call_count for turn in turns),
            widest=max((turn.tool_call_count for turn in turns), default=0),
            malformed=sum(turn.malformed for turn in turns),
            prompt_tokens=speaker.prompt_tokens,
            completion_tokens=speaker.sampled_tokens,
        )

    def trajectory_json(self) -> dict[str, JsonValue]:
        """Its model's replies; what the harness asked is in the segments, where there are any."""
        segments = self._conversation.segments() if self._conversation is not None else ()
        return {
            "messages": [{"role": "assistant", "content": turn.text} for turn in self.turns],
            "segments": segments_as_json(segments),
        }


def gateway_solver(harnesses: HarnessRunner, settings: EpisodeSettings, build_sampling: BuildSampling) -> Solver:
    def player(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver) -> SolverRun:
        @contextmanager
        def begin() -> Generator[StartedHarness]:
            with harnesses.open_run(task, terminal, settings, build_sampling(attempt), observer) as begun:
                yield StartedHarness(*begun)

        return HarnessSolverRun(begin)

    return player


def notify_observer(observer: EpisodeObserver) -> OnReply:
    """Shows an observer what a model at a URL says; nobody knows its version."""

    def told(turn: int, said: RelayedReply, ms: float) -> None:
        observer.on_turn(turn, said.text, said.sampled_tokens, (NO_VERSION, NO_VERSION), ms)

    return told


def relay_solver(
    relay: ApiRelay, harness: HarnessSettings, settings: EpisodeSettings, ticket_of: BuildRequest
) -> Solver:
    def player(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver) -> SolverRun:
        @asynccontextmanager
        async def reach(line: RelaySession) -> AsyncGenerator[Mapping[str, str]]:
            async with relay.listen_in_sandbox(terminal.session, harness.harness_port, line) as key:
                yield harness_environment(
                    f"http://{PROXY_HOST}:{harness.harness_port}", key, relay.settings.model, task
                )

        @contextmanager
        def begin() -> Generator[StartedHarness]:
            ticket = ticket_of(attempt)
            with relay.open_session(ticket.trajectory_id, ticket.seed, notify_observer(observer)) as line:
                acting = HarnessRun(task, line, terminal, harness.harness, reach(line), settings, observer)
                yield StartedHarness(acting, line)

        return HarnessSolverRun(begin)

    return player
