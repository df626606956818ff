"""A worker's episodes on environment services: its gateway keeps what the policy said, and they tell what came of it.

``async with Environments(settings, …) as environments: trajectory = await environments.run(…)``.  The policy is reached
at this node's address by a key of the episode's own, which is worth nothing once it is over.
"""

from __future__ import annotations

import asyncio
import secrets
from types import TracebackType
from typing import Self

from actors.agents.settings import AgentSettings
from actors.engines.messages import StreamingGenerateFunction
from actors.environment.client import EnvironmentClient
from actors.environment.messages import (
    AGENT_ADAPTER,
    BeginEpisode,
    EpisodeOutcome,
    PolicyAddress,
    SandboxTimeouts,
    make_episode_limits,
)
from actors.gateway.server import Gateway
from actors.gateway.session import GatewaySession
from actors.rewards.composite import apply_reward
from actors.rollout.episode import EpisodeObserver, EpisodeSettings, GradedEpisode
from actors.rollout.harness import make_reply_callback, make_session_settings
from actors.rollout.stages import StageDeadlines, StageOverrun, run_stage
from actors.tokens.chat_format import Tokenizer
from actors.workers.provider_settings import ProviderSettings
from protocol.errors import InfraError
from protocol.trajectory import RolloutRequest, Trajectory
from sandbox.http.task_codec import encode_task
from sandbox.pool.settings import PoolStatistics
from sandbox.tasks.task import Task

_MODEL = "policy"
"""Under which services ask for it."""
_SPARE_S = 10.0
"""So much earlier than its worker gives it up, an episode is ended where it runs: who is nearest says what it was."""


class EnvironmentRunner:
    def __init__(
        self,
        settings: ProviderSettings,
        agent: AgentSettings,
        times: SandboxTimeouts,
        tokenizer: Tokenizer,
        generate: StreamingGenerateFunction,
        *,
        episodes: int,
    ) -> None:
        self._agent, self._times, self._episodes = AGENT_ADAPTER.dump_python(agent, mode="json"), times, episodes
        self._services = EnvironmentClient(settings.urls, settings.token, acquire_s=times.acquire_s)
        self._gateway = Gateway(
            tokenizer, generate, model=_MODEL, host=settings.callback_host, thinking=agent.thinking.template_argument
        )
        self._running = self._started = self._failed = 0

    async def __aenter__(self) -> Self:
        await self._gateway.__aenter__()
        try:
            await self._services.__aenter__()
        except BaseException:
            await asyncio.shield(self._gateway.__aexit__(None, None, None))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._services.__aexit__(kind, error, trace)
        finally:
            await self._gateway.__aexit__(kind, error, trace)

    async def run_episode(
        self,
        request: RolloutRequest,
        task: Task,
        settings: EpisodeSettings,
        observer: EpisodeObserver,
        deadlines: StageDeadlines,
    ) -> Trajectory:
        """One episode.  Raises :class:`InfraError` when infrastructure failed."""
        name = request.attempt_id
        self._running, self._started = self._running + 1, self._started + 1
        try:
            with self._gateway.open_session(
                name, make_session_settings(settings, request), make_reply_callback(observer)
            ) as session:
                begin = self._make_begin(request, task, settings, self._gateway.api_key(session), deadlines)
                async with run_stage("environment", deadlines.evaluate):
                    outcome = await self._services.run_episode(begin, lambda: not session.has_requests)
                session.close()
                return await _trajectory(request, task, settings, session=session, outcome=outcome, observer=observer)
        except BaseException:
            self._failed += 1
            raise
        finally:
            self._running -= 1

    def _make_begin(
        self, request: RolloutRequest, task: Task, settings: EpisodeSettings, key: str, deadlines: StageDeadlines
    ) -> BeginEpisode:
        left_s = self._times.longest_s if deadlines.evaluate is None else _left_s(deadlines.evaluate)
        return BeginEpisode(
            episode=f"{request.run_id}/{request.attempt_id}.{secrets.token_hex(4)}",
            task=encode_task(task),
            agent=self._agent,
            limits=make_episode_limits(settings, request, self._times),
            model=PolicyAddress(url=f"{self._gateway.url}/v1", key=key, name=_MODEL),
            seed=request.seed,
            vanished_before=request.vanished > 0,
            deadline_s=left_s,
        )

    def statistics(self) -> PoolStatistics:
        """Of episodes, where a pool has sandboxes: how far each is, its service knows."""
        ended = self._started - self._running
        return PoolStatistics(
            self._episodes, self._running, 0, 0, self._started, ended, self._failed, 0, 0.0, 0, 0, self._episodes
        )


async def _trajectory(
    request: RolloutRequest,
    task: Task,
    settings: EpisodeSettings,
    *,
    session: GatewaySession,
    outcome: EpisodeOutcome,
    observer: EpisodeObserver,
) -> Trajectory:
    """What the session kept, worth what came of it.  Raises InfraError where an engine had failed it."""
    if session.last_error is not None:
        raise session.last_error
    if not (segments := session.segments()):
        raise InfraError(f"the episode ended without an answer of the policy's: {outcome.error}")
    _show_tool_events(outcome, observer)
    ended = GradedEpisode(outcome.status, outcome.graded, outcome.error)
    turns = outcome.turns if len(outcome.turns) == session.replies else session.turns()
    played = ended.to_result(task, turns, segments)
    reward, segments = await apply_reward(settings.reward, played, segments, session.turn_order)
    observer.on_grade(outcome.graded, reward)
    timings_ms = {**outcome.timings_ms, "generate": session.generate_ms}
    return ended.to_trajectory(request, reward, segments, session.engine, timings_ms)


def _left_s(by: float) -> float:
    """Raises StageOverrun where it is over."""
    left_s = by - asyncio.get_running_loop().time() - _SPARE_S
    if left_s <= 0:
        raise StageOverrun("no time is left for the episode")
    return left_s


def _show_tool_events(outcome: EpisodeOutcome, observer: EpisodeObserver) -> None:
    """What the tools did, at its end."""
    for shown in outcome.shown:
        if shown.kind == "call":
            observer.on_call(shown.tool, shown.text)
        else:
            observer.on_result(shown.text)
