"""Solves tasks with a harness: a program in the sandbox that reaches a served model through the gateway, or a model at
a URL through a relay."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from actors.engines.sampling import EpisodeSampling
from actors.rewards.episode_result import ModelTurn
from actors.rollout.harness import HarnessRun, HarnessSession, harness_environment, no_reply_error
from actors.rollout.observer import EpisodeObserver
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.settings import EpisodeSettings, HarnessSettings
from actors.rollout.terminal import SandboxDestroyedByAgent
from actors.workers.harness_runner import HarnessRunner
from launch.evaluation.solvers.api_relay import ApiRelay, OnReply, RelaySession
from launch.evaluation.solvers.relayed_replies import RelayedReply
from launch.evaluation.solvers.segments_json import segments_as_json
from launch.evaluation.solvers.solver import Solver, SolverRun
from protocol.errors import UserError
from protocol.evaluation import AttemptId, AttemptUsage
from protocol.events import JsonValue
from protocol.trajectory import EpisodeStatus, RolloutRequest, Segment
from protocol.weights import NO_VERSION
from sandbox.docker.network.proxy_address import PROXY_HOST
from sandbox.tasks.task import Task

BuildRequest = Callable[[AttemptId], RolloutRequest]
BuildSampling = Callable[[AttemptId], EpisodeSampling]


class HarnessConversation(HarnessSession, Protocol):
    """A harness session with what is known of its conversation."""

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
    """One attempt by a harness."""

    start: Callable[[], AbstractContextManager[StartedHarness]]
    """Opens its session and starts the harness."""
    _conversation: HarnessConversation | None = None

    async def play(self, task: Task) -> EpisodeStatus:
        """Run the harness.  Raises UserError for a step of a task, because a session is that of one run here."""
        if task.steps:
            raise UserError(
                f"task {task.id} has steps, which no harness plays in `longshore evaluate`: leave the task out "
                "(--task-ids), or use a built-in agent (agent.harness=)"
            )
        with self.start() as (harness, conversation):
            self._conversation = conversation
            try:
                status = await harness.play(task)
            except SandboxDestroyedByAgent as gone:
                if not conversation.turns():
                    raise no_reply_error(str(gone)) from gone
                raise
        if not conversation.turns():
            raise no_reply_error(harness.exit_summary)
        return status

    @property
    def turns(self) -> Sequence[ModelTurn]:
        return self._conversation.turns() if self._conversation is not None else ()

    @property
    def final_answer(self) -> str:
        return self._conversation.last_content if self._conversation is not None else ""

    @property
    def usage(self) -> AttemptUsage:
        conversation, turns = self._conversation, self.turns
        if conversation is None:
            return AttemptUsage()
        return AttemptUsage(
            turns=len(turns),
            tool_calls=sum(turn.tool_call_count for turn in turns),
            max_parallel_calls=max((turn.tool_call_count for turn in turns), default=0),
            malformed_turns=sum(turn.malformed for turn in turns),
            prompt_tokens=conversation.prompt_tokens,
            completion_tokens=conversation.sampled_tokens,
        )

    def trajectory_json(self) -> dict[str, JsonValue]:
        """Return the model's replies; the harness's prompts are in the segments, if there are any."""
        segments = self._conversation.segments() if self._conversation is not None else ()
        return {
            "messages": [{"role": "assistant", "content": turn.text} for turn in self.turns],
            "segments": segments_as_json(segments),
        }


def gateway_solver(harnesses: HarnessRunner, settings: EpisodeSettings, build_sampling: BuildSampling) -> Solver:
    def start(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver) -> SolverRun:
        del task

        @contextmanager
        def open_harness() -> Generator[StartedHarness]:
            with harnesses.open_run(terminal, settings, build_sampling(attempt), observer) as started:
                yield StartedHarness(*started)

        return HarnessSolverRun(open_harness)

    return start


def notify_observer(observer: EpisodeObserver) -> OnReply:
    """Return a callback that shows an observer the replies of a model at a URL, which has no version."""

    def on_reply(turn: int, reply: RelayedReply, ms: float) -> None:
        observer.on_turn(turn, reply.text, reply.sampled_tokens, (NO_VERSION, NO_VERSION), ms)

    return on_reply


def relay_solver(
    relay: ApiRelay, harness: HarnessSettings, settings: EpisodeSettings, build_request: BuildRequest
) -> Solver:
    def start(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver) -> SolverRun:
        del task

        @asynccontextmanager
        async def listen(session: RelaySession, task: Task) -> AsyncGenerator[Mapping[str, str]]:
            async with relay.listen_in_sandbox(terminal.session, harness.harness_port, session) as key:
                url = f"http://{PROXY_HOST}:{harness.harness_port}"
                yield harness_environment(url, key, relay.settings.model, task, settings)

        @contextmanager
        def open_harness() -> Generator[StartedHarness]:
            request = build_request(attempt)
            with relay.open_session(request.trajectory_id, request.seed, notify_observer(observer)) as session:
                open_relay = partial(listen, session)
                run = HarnessRun(session, terminal, harness.harness, open_relay, settings, observer)
                yield StartedHarness(run, session)

        return HarnessSolverRun(open_harness)

    return start
