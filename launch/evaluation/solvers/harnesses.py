"""Solves tasks with a harness: a program in the sandbox that reaches a served model through the gateway, or a model at
a URL through a relay."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from actors.engines.sampling import EpisodeSampling
from actors.gateway.exchanges import WorkConversation
from actors.rewards.episode_result import ModelTurn
from actors.rollout.harness import HarnessRun, HarnessSession, harness_environment, no_reply_error
from actors.rollout.observer import EpisodeObserver
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.settings import EpisodeSettings, HarnessSettings
from actors.rollout.terminal import SandboxDestroyedByAgent
from actors.workers.harness_runner import HarnessRunner
from launch.evaluation.results.swe_synth_samples import TOOLS
from launch.evaluation.results.trainable_messages import GAP
from launch.evaluation.solvers.api_relay import ApiRelay, OnReply, RelaySession
from launch.evaluation.solvers.relayed_replies import RelayedReply
from launch.evaluation.solvers.segments_json import segments_as_json
from launch.evaluation.solvers.solver import Solver, SolverRun
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
    @property
    def work(self) -> WorkConversation: ...
    def turns(self) -> Sequence[ModelTurn]: ...
    def segments(self) -> Sequence[Segment]: ...


@dataclass(frozen=True, slots=True)
class HarnessSolverRun:
    """One attempt by a harness, within its session."""

    harness: HarnessRun
    conversation: HarnessConversation

    async def play(self, task: Task) -> EpisodeStatus:
        try:
            status = await self.harness.play(task)
        except SandboxDestroyedByAgent as gone:
            if not self.turns:
                raise no_reply_error(str(gone)) from gone
            raise
        if not self.turns:
            raise no_reply_error(self.harness.exit_summary)
        return status

    @property
    def turns(self) -> Sequence[ModelTurn]:
        return self.conversation.turns()

    @property
    def final_answer(self) -> str:
        return self.conversation.last_content

    @property
    def usage(self) -> AttemptUsage:
        turns = self.turns
        return AttemptUsage(
            turns=len(turns),
            tool_calls=sum(turn.tool_call_count for turn in turns),
            max_parallel_calls=max((turn.tool_call_count for turn in turns), default=0),
            malformed_turns=sum(turn.malformed for turn in turns),
            prompt_tokens=self.conversation.prompt_tokens,
            completion_tokens=self.conversation.sampled_tokens,
        )

    def trajectory_json(self) -> dict[str, JsonValue]:
        """Return the conversation of the harness's work, with the tools that it offered to the model."""
        work = self.conversation.work
        return {
            "messages": cast("JsonValue", work.messages),
            TOOLS: cast("JsonValue", [tool.schema for tool in work.tools]),
            "segments": segments_as_json(self.conversation.segments()),
            **({GAP: work.gap} if work.gap else {}),
        }


def gateway_solver(harnesses: HarnessRunner, settings: EpisodeSettings, build_sampling: BuildSampling) -> Solver:
    @contextmanager
    def start(
        task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver
    ) -> Generator[SolverRun]:
        del task
        with harnesses.open_run(terminal, settings, build_sampling(attempt), observer) as started:
            yield HarnessSolverRun(*started)

    return start


def notify_observer(observer: EpisodeObserver) -> OnReply:
    """Return a callback that shows an observer the replies of a model at a URL, which has no version."""

    def on_reply(turn: int, reply: RelayedReply, ms: float) -> None:
        observer.on_turn(turn, reply.text, reply.sampled_tokens, (NO_VERSION, NO_VERSION), ms)

    return on_reply


def relay_solver(
    relay: ApiRelay, harness: HarnessSettings, settings: EpisodeSettings, build_request: BuildRequest
) -> Solver:
    @contextmanager
    def start(
        task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver
    ) -> Generator[SolverRun]:
        del task

        @asynccontextmanager
        async def listen(session: RelaySession, task: Task) -> AsyncGenerator[Mapping[str, str]]:
            async with relay.listen_in_sandbox(terminal.session, harness.harness_port, session) as key:
                url = f"http://{PROXY_HOST}:{harness.harness_port}"
                yield harness_environment(url, key, relay.settings.model, task, settings)

        request = build_request(attempt)
        with relay.open_session(request.trajectory_id, request.seed, notify_observer(observer)) as session:
            open_relay = partial(listen, session)
            run = HarnessRun(session, terminal, harness.harness, open_relay, settings, observer)
            yield HarnessSolverRun(run, session)

    return start
