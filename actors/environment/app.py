"""The HTTP side of an environment service: one endpoint per message, without any logic."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.applications import Starlette

from actors.environment import messages as m
from actors.environment.service import EnvironmentService
from sandbox.http.application import create_application, prometheus_exposition
from sandbox.http.auth import Access
from sandbox.http.endpoints import HttpCall, HttpEndpoint
from sandbox.http.messages import ApiMessage, HttpReply, OkReply


def create_app(
    open_service: Callable[[], AbstractAsyncContextManager[EnvironmentService]], access: Access
) -> Starlette:
    """Return the application; ``open_service`` is entered when the server starts and left when it stops."""
    handlers = _Handlers()

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        async with open_service() as service:
            handlers.service = service
            yield

    title = "longshore environment service"
    return create_application(title, handlers.table(), running, lambda: _metrics(handlers.service), access)


class _Handlers:
    service: EnvironmentService

    def table(self) -> list[HttpEndpoint[Any]]:
        return [
            HttpEndpoint("/healthz", "whether it answers", None, OkReply, self.health),
            HttpEndpoint("/status", "its slots", None, m.EnvironmentServiceStatus, self.status, (401,)),
            HttpEndpoint("/begin", "begin an episode, once", m.StartEpisodeRequest, m.StartEpisodeResponse,
                     self.begin, (401, 409, 422, 429, 503)),
            HttpEndpoint("/outcome", "the outcome of an episode", m.EpisodeOutcomeRequest, m.EpisodeOutcomeResponse,
                     self.outcome, (401, 404, 409, 410, 422, 503, 504)),
            HttpEndpoint("/cancel", "end an episode", m.CancelEpisodeRequest, m.CancelEpisodeResponse,
                         self.cancel, (401,)),
        ]  # fmt: skip

    async def health(self, _: HttpCall[ApiMessage]) -> HttpReply:
        return HttpReply(200, OkReply())

    async def status(self, _: HttpCall[ApiMessage]) -> HttpReply:
        service = self.service
        slots = m.EpisodeSlots(slots=service.settings.slots, running=service.running, draining=service.draining)
        return HttpReply(200, m.EnvironmentServiceStatus(environment=slots))

    async def begin(self, call: HttpCall[m.StartEpisodeRequest]) -> HttpReply:
        reused = self.service.begin(call.body, call.digest)
        return HttpReply(200, m.StartEpisodeResponse(reused=reused, ttl_s=self.service.settings.ttl_s))

    async def outcome(self, call: HttpCall[m.EpisodeOutcomeRequest]) -> HttpReply:
        return await self.service.wait_outcome(call.body.episode, call.body.wait_s) or HttpReply(
            200, m.EpisodeOutcomeResponse()
        )

    async def cancel(self, call: HttpCall[m.CancelEpisodeRequest]) -> HttpReply:
        return HttpReply(200, m.CancelEpisodeResponse(found=self.service.cancel(call.body.episode)))


def _metrics(service: EnvironmentService) -> bytes:
    gauges = {
        "slots": ("episodes at once", service.settings.slots),
        "running": ("episodes that run", service.running),
    }
    counters = {
        "begun": ("episodes begun", service.begun),
        "finished": ("episodes with an outcome", service.finished),
        "failed": ("episodes that infrastructure failed", service.failed),
        "abandoned": ("episodes ended because no client polled them", service.abandoned),
    }
    return prometheus_exposition("longshore_environment", gauges, counters)
