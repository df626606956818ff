"""Client of environment services: begins an episode on one of them and polls until it has ended.

An episode begins on a single service: one that may have accepted it is asked again and never skipped.  A full or
unreachable service is skipped; each task has its own order of services, so that an image is built in few places.  A
cancelled caller cancels the episode; a service that cannot be reached ends it by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Self

import aiohttp

from actors.engines.messages import EngineUnavailable
from actors.environment.messages import MODEL_FAILED, OUTCOME_ADAPTER, OVERRUN, EpisodeOutcome, StartEpisodeRequest
from actors.rollout.stages import StageOverrun
from protocol.errors import InfraError, UserError
from sandbox.errors import BuildError, SandboxLost, SandboxStartError, SandboxVanished, TaskFault
from sandbox.http import failures
from sandbox.http.json_client import TRANSPORT_ERRORS, HttpStatusError, JsonHttpClient
from sandbox.http.server_urls import rank_urls

WAIT_S, _ANSWER_S, _CANCEL_S, ROUND_S = 20.0, 30.0, 5.0, 1.0
_FULL = frozenset({429, 503})
_KINDS: Mapping[str, type[Exception]] = {
    failures.START_FAILED: SandboxStartError,
    failures.BUILD_FAILED: BuildError,
    failures.TASK_FAULT: TaskFault,
    failures.TASK_REFUSED: UserError,
    failures.VANISHED: SandboxVanished,
    failures.LOST: SandboxLost,
    failures.INFRA_FAILED: InfraError,
    MODEL_FAILED: EngineUnavailable,
    OVERRUN: StageOverrun,
    failures.DEADLINE: StageOverrun,
}
"""Error code → local error class."""


class EnvironmentLostError(SandboxLost):
    """The service that ran the episode does not answer, or does not know it any more."""


class EnvironmentClient:
    """``async with EnvironmentClient(urls, token) as client: outcome = await client.run_episode(begin)``."""

    def __init__(self, urls: Sequence[str], token: str = "", *, acquire_s: float, unreachable_s: float = 30.0) -> None:
        """``acquire_s`` is the longest wait for a slot, ``unreachable_s`` for a service that does not answer."""
        self._services = {
            url: JsonHttpClient(url, token, request_s=_ANSWER_S, unreachable_s=unreachable_s) for url in urls
        }
        self._acquire_s = acquire_s
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for service in self._services.values():
                await stack.enter_async_context(service)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def run_episode(
        self, begin: StartEpisodeRequest, untouched: Callable[[], bool] = lambda: True
    ) -> EpisodeOutcome:
        """Run an episode from its beginning to its end.

        ``untouched`` returns whether the policy has not been called for it yet.  Raises SandboxStartError if no service
        accepts it, EnvironmentLostError, and the episode's own errors.
        """
        try:
            service = await self._begin(begin, untouched)
            try:
                return await self._wait_outcome(service, begin)
            except BaseException:
                await asyncio.shield(_cancel(service, begin))
                raise
        except HttpStatusError as refused:
            raise _translated(refused) from None

    async def _begin(self, begin: StartEpisodeRequest, untouched: Callable[[], bool]) -> JsonHttpClient:
        """Return the service that took the episode."""
        give_up = time.monotonic() + self._acquire_s
        while True:
            reasons: list[str] = []
            for url in rank_urls(str(begin.task.get("id", "")), self._services):
                service = self._services[url]
                if (why := await self._try_service(service, begin, untouched)) is None:
                    return service
                reasons.append(f"{url}: {why}")
            if time.monotonic() + ROUND_S > give_up:
                raise SandboxStartError(
                    f"no environment service accepted it within {self._acquire_s:g} s: {'; '.join(reasons)}"
                )
            await asyncio.sleep(ROUND_S)

    async def _try_service(
        self, service: JsonHttpClient, begin: StartEpisodeRequest, untouched: Callable[[], bool]
    ) -> str | None:
        """Return the reason why the service did not accept the episode; None if it did.  Raises HttpStatusError,
        EnvironmentLostError."""
        body = begin.model_dump(mode="json")
        give_up = time.monotonic() + service.unreachable_s
        sent = False
        while True:
            try:
                given = await service.post("/begin", body)
            except HttpStatusError as refused:
                if refused.status not in _FULL:
                    raise
                return str(refused)
            except TRANSPORT_ERRORS as error:
                if isinstance(error, aiohttp.ClientConnectorError) and not sent:
                    return str(error)
                sent = True
                if time.monotonic() > give_up:
                    await asyncio.shield(_cancel(service, begin))
                    raise EnvironmentLostError(
                        f"{service.url} did not confirm that it accepted the episode: {error}"
                    ) from error
                await asyncio.sleep(ROUND_S)
                continue
            except asyncio.CancelledError:
                await asyncio.shield(_cancel(service, begin))
                raise
            if sent and not given["reused"] and not untouched():
                await asyncio.shield(_cancel(service, begin))
                raise EnvironmentLostError(f"{service.url} began the episode a second time: it was restarted meanwhile")
            return None

    async def _wait_outcome(self, service: JsonHttpClient, begin: StartEpisodeRequest) -> EpisodeOutcome:
        query = {"episode": begin.episode, "wait_s": WAIT_S}
        while True:
            try:
                reply = await service.post_with_retries("/outcome", query)
            except TRANSPORT_ERRORS as error:
                raise EnvironmentLostError(f"{service.url} does not answer: {type(error).__name__} {error}") from error
            if reply["outcome"] is not None:
                return OUTCOME_ADAPTER.validate_python(reply["outcome"])


async def _cancel(service: JsonHttpClient, begin: StartEpisodeRequest) -> None:
    """Cancel the episode if the service can be reached."""
    with suppress(HttpStatusError, *TRANSPORT_ERRORS):
        async with asyncio.timeout(_CANCEL_S):
            body: dict[str, Any] = {"episode": begin.episode}
            await service.post("/cancel", body)


def _translated(refused: HttpStatusError) -> Exception:
    if (kind := _KINDS.get(refused.code)) is not None:
        return kind(str(refused))
    return EnvironmentLostError(f"{refused} ({refused.status} {refused.code})")
