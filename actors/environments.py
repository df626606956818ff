"""A worker's episodes on environment services: its gateway keeps what the policy said, and they tell what came of it.

``async with Environments(settings, …) as environments: trajectory = await environments.run(…)``.  The policy is reached
at this node's address by a key of the episode's own, which is worth nothing once it is over.
"""

from __future__ import annotations

import asyncio
import secrets
from types import TracebackType
from typing import Self

from actors.agents.chat import Tokenizer
from actors.agents.settings import AgentSettings
from actors.engines.messages import GenerateWatched
from actors.environment.client import EnvironmentServices
from actors.environment.wire import AGENT, Begin, EpisodeOutcome, Model, SandboxTimes, limits_of
from actors.episode import Ended, EpisodeSettings, Observer
from actors.gateway.server import Gateway
from actors.gateway.session import Session
from actors.harness import on_reply, session_settings
from actors.provider_settings import ProviderSettings
from actors.rewards.rewarding import rewarded
from actors.stages import Deadlines, StageOverrun, stage
from actors.tickets import name_of
from protocol.errors import InfraError
from protocol.trajectory import Ticket, Trajectory
from sandbox.pool_settings import PoolStatistics
from sandbox.task_codec import encode_task
from sandbox.tasks.task import Task

_MODEL = "policy"
"""Under which services ask for it."""
_SPARE_S = 10.0
"""So much earlier than its worker gives it up, an episode is ended where it runs: who is nearest says what it was."""


class Environments:
    def __init__(
        self,
        settings: ProviderSettings,
        agent: AgentSettings,
        times: SandboxTimes,
        tokenizer: Tokenizer,
        generate: GenerateWatched,
        *,
        episodes: int,
    ) -> None:
        self._agent, self._times, self._episodes = AGENT.dump_python(agent, mode="json"), times, episodes
        self._services = EnvironmentServices(settings.urls, settings.token, acquire_s=times.acquire_s)
        self._gateway = Gateway(
            tokenizer, generate, model=_MODEL, host=settings.callback, thinking=agent.thinking.argument
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

    async def run(
        self, ticket: Ticket, task: Task, settings: EpisodeSettings, observer: Observer, deadlines: Deadlines
    ) -> Trajectory:
        """One episode.  Raises :class:`InfraError` when infrastructure failed."""
        name = name_of(ticket)
        self._running, self._started = self._running + 1, self._started + 1
        try:
            with self._gateway.session(name, session_settings(settings, ticket), on_reply(observer)) as session:
                begin = self._begin(ticket, task, settings, self._gateway.key(session), deadlines)
                async with stage("environment", deadlines.evaluate):
                    outcome = await self._services.play(begin, lambda: not session.asked)
                session.end()
                return await _trajectory(ticket, task, settings, session=session, outcome=outcome, observer=observer)
        except BaseException:
            self._failed += 1
            raise
        finally:
            self._running -= 1

    def _begin(self, ticket: Ticket, task: Task, settings: EpisodeSettings, key: str, deadlines: Deadlines) -> Begin:
        left_s = self._times.longest_s if deadlines.evaluate is None else _left_s(deadlines.evaluate)
        return Begin(
            episode=f"{ticket.run_id}/{name_of(ticket)}.{secrets.token_hex(4)}",
            task=encode_task(task),
            agent=self._agent,
            limits=limits_of(settings, ticket, self._times),
            model=Model(url=f"{self._gateway.url}/v1", key=key, name=_MODEL),
            seed=ticket.seed,
            vanished_before=ticket.vanished > 0,
            deadline_s=left_s,
        )

    def statistics(self) -> PoolStatistics:
        """Of episodes, where a pool has sandboxes: how far each is, its service knows."""
        ended = self._started - self._running
        return PoolStatistics(
            self._episodes, self._running, 0, 0, self._started, ended, self._failed, 0, 0.0, 0, 0, self._episodes
        )


async def _trajectory(
    ticket: Ticket,
    task: Task,
    settings: EpisodeSettings,
    *,
    session: Session,
    outcome: EpisodeOutcome,
    observer: Observer,
) -> Trajectory:
    """What the session kept, worth what came of it.  Raises InfraError where an engine had failed it."""
    if session.trouble is not None:
        raise session.trouble
    if not (segments := session.segments()):
        raise InfraError(f"the episode ended without an answer of the policy's: {outcome.error}")
    _show(outcome, observer)
    ended = Ended(outcome.status, outcome.graded, outcome.error)
    turns = outcome.turns if len(outcome.turns) == session.replies else session.turns()
    played = ended.played(task, turns, segments)
    reward, segments = await rewarded(settings.reward, played, segments, session.order)
    observer.on_grade(outcome.graded, reward)
    timings_ms = {**outcome.timings_ms, "generate": session.generate_ms}
    return ended.trajectory(ticket, reward, segments, session.engine, timings_ms)


def _left_s(by: float) -> float:
    """Raises StageOverrun where it is over."""
    left_s = by - asyncio.get_running_loop().time() - _SPARE_S
    if left_s <= 0:
        raise StageOverrun("no time is left for the episode")
    return left_s


def _show(outcome: EpisodeOutcome, observer: Observer) -> None:
    """What the tools did, at its end."""
    for shown in outcome.shown:
        if shown.kind == "call":
            observer.on_call(shown.tool, shown.text)
        else:
            observer.on_result(shown.text)
