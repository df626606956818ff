"""The environment service's HTTP side: one endpoint for each message, and nothing decided here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.applications import Starlette

from actors.environment import wire as w
from actors.environment.service import EnvironmentService
from sandbox.edge.app import application, exposition
from sandbox.edge.auth import Access
from sandbox.edge.endpoint import Call, Endpoint
from sandbox.server.messages import Done, Message, Reply


def create_app(
    open_service: Callable[[], AbstractAsyncContextManager[EnvironmentService]], access: Access
) -> Starlette:
    """``open_service`` is entered when the server starts and left when it stops."""
    handlers = _Handlers()

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        async with open_service() as service:
            handlers.service = service
            yield

    title = "longshore environment service"
    return application(title, handlers.table(), running, lambda: _metrics(handlers.service), access)


class _Handlers:
    service: EnvironmentService

    def table(self) -> list[Endpoint[Any]]:
        return [
            Endpoint("/healthz", "whether it answers", None, Done, self.health),
            Endpoint("/status", "its places", None, w.ServiceStatus, self.status, (401,)),
            Endpoint("/begin", "an episode, begun once", w.Begin, w.Begun, self.begin, (401, 409, 422, 429, 503)),
            Endpoint("/outcome", "what came of it, once it is over", w.Ask, w.Told, self.outcome,
                     (401, 404, 409, 410, 422, 503, 504)),
            Endpoint("/cancel", "end it", w.Cancel, w.Cancelled, self.cancel, (401,)),
        ]  # fmt: skip

    async def health(self, _: Call[Message]) -> Reply:
        return Reply(200, Done())

    async def status(self, _: Call[Message]) -> Reply:
        service = self.service
        places = w.Places(slots=service.settings.slots, running=service.running, draining=service.draining)
        return Reply(200, w.ServiceStatus(environment=places))

    async def begin(self, call: Call[w.Begin]) -> Reply:
        reused = self.service.begin(call.body, call.digest)
        return Reply(200, w.Begun(reused=reused, ttl_s=self.service.settings.ttl_s))

    async def outcome(self, call: Call[w.Ask]) -> Reply:
        return await self.service.told(call.body.episode, call.body.wait_s) or Reply(200, w.Told())

    async def cancel(self, call: Call[w.Cancel]) -> Reply:
        return Reply(200, w.Cancelled(found=self.service.cancel(call.body.episode)))


def _metrics(service: EnvironmentService) -> bytes:
    gauges = {
        "slots": ("episodes at once", service.settings.slots),
        "running": ("episodes that run", service.running),
    }
    counters = {
        "begun": ("episodes begun", service.begun),
        "finished": ("episodes with an outcome", service.finished),
        "failed": ("episodes that infrastructure failed", service.failed),
        "abandoned": ("episodes ended because nobody asked for them", service.abandoned),
    }
    return exposition("longshore_environment", gauges, counters)
