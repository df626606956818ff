"""A worker's episodes on environment services: the worker's gateway records the sampled tokens, and the services return
the outcomes.

``async with EnvironmentRunner(spec, tokenizer, generate, calls) as runner: await runner.run_episode(context)``.
The services reach the policy at this node's address, with a key for each episode that expires with it.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from actors.agents.call_format import CallFormat
from actors.engines.messages import StreamingGenerateFunction
from actors.environment.client import EnvironmentClient
from actors.environment.messages import AGENT_ADAPTER, EpisodeLimits, EpisodeOutcome, PolicyAddress, StartEpisodeRequest
from actors.gateway.server import Gateway
from actors.gateway.session import GatewaySession
from actors.rollout.grading import EpisodeContext, GradedEpisode, SampledEpisode, finish_episode
from actors.rollout.harness import make_reply_callback
from actors.rollout.observer import EpisodeObserver
from actors.rollout.stages import StageOverrun, run_stage
from actors.tokens.chat_template import Tokenizer
from actors.workers.provider_spec import ProviderSpec
from actors.workers.settings import WorkerSpec
from protocol.errors import InfraError
from protocol.trajectory import Trajectory
from sandbox.http.task_codec import encode_task
from sandbox.pool.settings import PoolStatistics

_MODEL = "policy"
"""The model name that services use."""
_MARGIN_S = 10.0
"""Seconds by which a service's deadline precedes the worker's, so that the service can report what failed."""


class EnvironmentRunner:
    """Runs episodes on environment services.  An async context manager."""

    def __init__(
        self,
        spec: WorkerSpec,
        provider: ProviderSpec,
        tokenizer: Tokenizer,
        generate: StreamingGenerateFunction,
        calls: CallFormat,
    ) -> None:
        self._spec, self._agent = spec, AGENT_ADAPTER.dump_python(spec.agent, mode="json")
        self._client = EnvironmentClient(provider.urls, provider.token, acquire_s=spec.limits.acquire_timeout_s)
        self._gateway = Gateway(
            tokenizer,
            generate,
            model=_MODEL,
            host=provider.callback_host,
            thinking=spec.agent.settings.thinking.template_argument,
            calls=calls,
        )
        self._running = self._started = self._failed = 0

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            await undo.enter_async_context(self._gateway)
            await self._client.__aenter__()
            undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._client.__aexit__(kind, error, trace)
        finally:
            await self._gateway.__aexit__(kind, error, trace)

    async def run_episode(self, context: EpisodeContext) -> Trajectory:
        """Run one episode.  Raises :class:`InfraError` if infrastructure failed."""
        self._running, self._started, completed = self._running + 1, self._started + 1, 0
        try:
            with self._gateway.open_session(
                context.settings, context.sampling, make_reply_callback(context.observer)
            ) as session:
                begin = self._make_begin(context, self._gateway.api_key(session))
                async with run_stage("environment", context.deadlines.evaluate):
                    outcome = await self._client.run_episode(begin, lambda: not session.has_requests)
                session.close()
                trajectory = await _make_trajectory(context, session, outcome)
            completed = 1
            return trajectory
        finally:
            self._running, self._failed = self._running - 1, self._failed + 1 - completed

    def _make_begin(self, context: EpisodeContext, key: str) -> StartEpisodeRequest:
        request, by = context.request, context.deadlines.evaluate
        return StartEpisodeRequest(
            episode=f"{request.run_id}/{request.attempt_id}.{secrets.token_hex(4)}",
            task=encode_task(context.task),
            agent=self._agent,
            limits=self._make_limits(context),
            model=PolicyAddress(url=f"{self._gateway.url}/v1", key=key, name=_MODEL),
            seed=request.seed,
            vanished_before=request.vanished_sandboxes > 0,
            deadline_s=self._spec.limits.episode_deadline_s if by is None else _remaining_s(by),
        )

    def _make_limits(self, context: EpisodeContext) -> EpisodeLimits:
        spec, sampling = self._spec, context.sampling
        return EpisodeLimits(
            settings=context.settings,
            temperature=sampling.temperature,
            reply_s=sampling.reply_timeout_s + sampling.restart_timeout_s,
            acquire_s=spec.limits.acquire_timeout_s,
            command_s=spec.command_timeout_s,
            grade_s=spec.grade_timeout_s,
            cleanup_s=spec.limits.cleanup_timeout_s,
        )

    def statistics(self) -> PoolStatistics:
        """Count episodes as a pool counts sandboxes; only the service knows the progress of each."""
        ended, slots = self._started - self._running, self._spec.episodes
        return PoolStatistics(slots, self._running, 0, 0, self._started, ended, self._failed, 0, 0.0, 0, 0, slots)


async def _make_trajectory(context: EpisodeContext, session: GatewaySession, outcome: EpisodeOutcome) -> Trajectory:
    """Join the session's segments with the outcome.  Raises InfraError if an engine failed the episode."""
    if session.last_error is not None:
        raise session.last_error
    if not (segments := session.segments()):
        raise InfraError(f"the episode ended without a reply from the policy: {outcome.error}")
    _show_tool_events(outcome, context.observer)
    record = SampledEpisode(
        turns=outcome.turns if len(outcome.turns) == len(session.turns()) else session.turns(),
        segments=segments,
        turn_order=session.turn_order,
        engine=session.engine,
        timings_ms={**outcome.timings_ms, "generate": session.generate_ms},
    )
    return await finish_episode(context, GradedEpisode(outcome.status, outcome.grade, outcome.error), record)


def _remaining_s(by: float) -> float:
    """Return the seconds until ``by``.  Raises StageOverrun if no time is left."""
    remaining_s = by - asyncio.get_running_loop().time() - _MARGIN_S
    if remaining_s <= 0:
        raise StageOverrun("no time is left for the episode")
    return remaining_s


def _show_tool_events(outcome: EpisodeOutcome, observer: EpisodeObserver) -> None:
    """Pass the tool calls of a finished episode to the observer."""
    for event in outcome.tool_events:
        if event.kind == "call":
            observer.on_call(event.tool, event.text)
        else:
            observer.on_result(event.text)
