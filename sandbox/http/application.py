"""Builds an HTTP application from a table of endpoints, with its OpenAPI document and its metrics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandbox.http.auth import Access
from sandbox.http.endpoints import HttpEndpoint, endpoint_route, not_found, openapi_document

Figures = Mapping[str, tuple[str, float]]
"""Description and value of each figure, by name."""


def create_application(
    title: str,
    table: Sequence[HttpEndpoint[Any]],
    running: Callable[[], AbstractAsyncContextManager[None]],
    metrics: Callable[[], bytes],
    access: Access,
) -> Starlette:
    """Build the application; ``running`` is entered when the server starts and left when it stops.

    ``metrics`` renders the answer to ``/metrics`` while it runs.
    """
    document = openapi_document(title, table)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with running():
            yield

    async def describe(_: Request) -> Response:
        return Response(document, media_type="application/json")

    async def measure(_: Request) -> Response:
        return Response(metrics(), media_type="text/plain; version=0.0.4")

    return Starlette(
        routes=[*map(endpoint_route, table), Route("/openapi.json", describe), Route("/metrics", measure)],
        middleware=access.middleware(),
        exception_handlers={404: not_found, 405: not_found},
        lifespan=lifespan,
    )


def prometheus_exposition(prefix: str, gauges: Figures, counters: Figures) -> bytes:
    """Render metrics in Prometheus' text format, from a registry created for this answer."""
    registry = CollectorRegistry()
    for name, (about, value) in gauges.items():
        Gauge(f"{prefix}_{name}", about, registry=registry).set(value)
    for name, (about, value) in counters.items():
        Counter(f"{prefix}_{name}", about, registry=registry).inc(value)
    return generate_latest(registry)
