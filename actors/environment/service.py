"""The episodes of one machine, without HTTP: each begins once and lives as long as its client polls it.

The result of an episode is kept for a while, so that a lost reply can be requested again.  A machine has a number of
slots; further requests are refused and may be retried.  When the service ends, its episodes end with their sandboxes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from actors.engines.messages import EngineUnavailable
from actors.environment.episode import EpisodeInputs, parse_episode_inputs
from actors.environment.messages import (
    MODEL_FAILED,
    OUTCOME_ADAPTER,
    OVERRUN,
    REUSED_ID,
    UNKNOWN_EPISODE,
    EpisodeOutcome,
    EpisodeOutcomeResponse,
    StartEpisodeRequest,
)
from actors.rollout.stages import StageOverrun
from sandbox.http import failures
from sandbox.http.messages import HttpError, HttpReply
from sandbox.pool.leases import EXPIRY_CHECK_S, REMEMBER_S, SlotsExhausted

_log = logging.getLogger(__name__)
_RETRY_S = 5.0
RunHostedEpisode = Callable[[EpisodeInputs], Awaitable[EpisodeOutcome]]


@dataclass(frozen=True, slots=True)
class EnvironmentServiceSettings:
    """Limits of an environment service."""

    slots: int = 16
    """Number of concurrent episodes, as in SETA's service."""
    ttl_s: float = 60.0
    """Seconds that an episode lives without a poll."""
    remember_s: float = REMEMBER_S
    """Seconds that a result is kept."""
    expiry_check_s: float = EXPIRY_CHECK_S
    """Seconds between two checks for episodes that no client polls."""


@dataclass(slots=True)
class _Episode:
    digest: str
    until: float
    """Time at which it is ended, or its result forgotten, unless it is polled before."""
    waiting: int = 0
    """Number of requests that wait for it."""
    work: asyncio.Task[None] | None = None
    reply: HttpReply | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


class EnvironmentService:
    """``async with EnvironmentService(settings, run_episode) as service``."""

    def __init__(
        self,
        settings: EnvironmentServiceSettings,
        run_episode: RunHostedEpisode,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self._run_episode, self._now = settings, run_episode, now
        self._episodes: dict[str, _Episode] = {}
        self._tasks = asyncio.TaskGroup()
        self._reaping: asyncio.Task[None] | None = None
        self.draining = False
        self.begun = self.finished = self.failed = self.abandoned = 0

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._reaping = self._tasks.create_task(self._keep_reaping())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.draining = True
        if self._reaping is not None:
            self._reaping.cancel()
        for episode in self._episodes.values():
            _end(episode)
        await self._tasks.__aexit__(None, None, None)

    async def drain(self, within_s: float) -> None:
        """Accept no more episodes, and end those that do not end within ``within_s``; waiting requests are answered."""
        self.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for episode in tuple(self._episodes.values()):
                    await episode.done.wait()
        for episode in self._episodes.values():
            _end(episode)

    @property
    def running(self) -> int:
        """Number of episodes that run."""
        return sum(not episode.done.is_set() for episode in self._episodes.values())

    def begin(self, request: StartEpisodeRequest, digest: str) -> bool:
        """Begin an episode, and return whether it had begun before.

        Raises SlotsExhausted, UserError, and HttpError for the name of another episode."""
        if (known := self._episodes.get(request.episode)) is not None:
            if known.digest != digest:
                raise HttpError(409, REUSED_ID, f"the name {request.episode} belongs to another episode")
            self._renew(known)
            return True
        if self.draining:
            raise HttpError(503, failures.DRAINING, "this service is being stopped", retry_after_s=_RETRY_S)
        if self.running >= self.settings.slots:
            raise SlotsExhausted("RUN_SLOTS_EXHAUSTED", f"all {self.settings.slots} slots are taken", _RETRY_S)
        inputs = parse_episode_inputs(request)
        episode = self._episodes[request.episode] = _Episode(digest, self._now() + self.settings.ttl_s)
        episode.work = self._tasks.create_task(self._run(request.episode, episode, inputs))
        self.begun += 1
        return False

    async def wait_outcome(self, name: str, wait_s: float) -> HttpReply | None:
        """Return the result of an episode, or None if it still runs after ``wait_s``.

        Raises HttpError for an unknown episode."""
        if (episode := self._episodes.get(name)) is None:
            raise HttpError(404, UNKNOWN_EPISODE, f"there is no episode {name}: it ended, or another service runs it")
        self._renew(episode)
        episode.waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await episode.done.wait()
        finally:
            episode.waiting -= 1
            self._renew(episode)
        return episode.reply

    def cancel(self, name: str) -> bool:
        """End an episode and forget its result; return whether it existed."""
        if (episode := self._episodes.pop(name, None)) is not None:
            _end(episode)
        return episode is not None

    def _renew(self, episode: _Episode) -> None:
        keep_s = self.settings.remember_s if episode.done.is_set() else self.settings.ttl_s
        episode.until = self._now() + keep_s

    async def _run(self, name: str, episode: _Episode, inputs: EpisodeInputs) -> None:
        reply = HttpError(503, failures.DRAINING, "the service was stopped under this episode").reply()
        try:
            async with asyncio.timeout(inputs.begin.deadline_s):
                outcome = await self._run_episode(inputs)
            reply = HttpReply(200, EpisodeOutcomeResponse(outcome=OUTCOME_ADAPTER.dump_python(outcome, mode="json")))
            self.finished += 1
        except Exception as error:  # noqa: BLE001  the boundary: every failure is a reply, and a defect is logged
            reply = _failure(name, error).reply()
            self.failed += 1
        finally:
            episode.reply = reply
            episode.done.set()
            self._renew(episode)

    async def _keep_reaping(self) -> None:
        while True:
            await asyncio.sleep(self.settings.expiry_check_s)
            self.reap_episodes()

    def reap_episodes(self) -> None:
        """End episodes that were not polled in time, and forget expired results."""
        over = [(n, e) for n, e in self._episodes.items() if not e.waiting and self._now() >= e.until]
        for name, episode in over:
            self.abandoned += not episode.done.is_set()
            self.cancel(name)


def _end(episode: _Episode) -> None:
    if episode.work is not None:
        episode.work.cancel()


def _failure(name: str, error: Exception) -> HttpError:
    if isinstance(error, EngineUnavailable):
        return HttpError(503, MODEL_FAILED, str(error))
    if isinstance(error, StageOverrun):
        return HttpError(504, OVERRUN, str(error))
    failure = failures.to_http_error(error)
    if failure.status == 500:
        _log.exception("episode %s failed by a defect", name)
    return failure
