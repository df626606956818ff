"""Builds an HTTP application from a table of endpoints, with its OpenAPI document and its metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from protocol.processes.loop_lag import LoopLag, measure_loop_lag
from protocol.processes.task_groups import task_group
from sandbox.http.auth import Access
from sandbox.http.body_budget import BodyBudget
from sandbox.http.connections import OpenConnections
from sandbox.http.endpoints import HttpEndpoint, endpoint_route, not_found, openapi_document

Figures = Mapping[str, tuple[str, float]]
"""Description and value of each figure, by name."""


def create_application(
    title: str,
    table: Sequence[HttpEndpoint[Any]],
    running: Callable[[], AbstractAsyncContextManager[None]],
    metrics: Callable[[], bytes],
    access: Access,
    *,
    more_routes: Sequence[Route] = (),
) -> Starlette:
    """Build the application; ``running`` is entered when the server starts and left when it stops.

    ``metrics`` renders the answer to ``/metrics`` while it runs; figures of the server itself are added.
    """
    document, budget, connections = openapi_document(title, table), BodyBudget(), OpenConnections()
    lags = deque([LoopLag(0.0, 0.0)], maxlen=1)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with running(), task_group() as group:
            measuring = group.create_task(measure_loop_lag(lags.append))
            yield
            measuring.cancel()

    async def describe(_: Request) -> Response:
        return Response(document, media_type="application/json")

    async def measure(_: Request) -> Response:
        return Response(
            metrics() + _server_metrics(connections, budget, lags[0]), media_type="text/plain; version=0.0.4"
        )

    app = Starlette(
        routes=[
            *(endpoint_route(each, budget) for each in table),
            Route("/openapi.json", describe),
            Route("/metrics", measure),
            *more_routes,
        ],
        middleware=access.middleware(),
        exception_handlers={404: not_found, 405: not_found},
        lifespan=lifespan,
    )
    app.state.connections = connections
    return app


def connections_of(app: Starlette) -> OpenConnections:
    """Return the connections of an application that :func:`create_application` has built."""
    return app.state.connections


def prometheus_exposition(prefix: str, gauges: Figures, counters: Figures) -> bytes:
    """Render metrics in Prometheus' text format, from a registry created for this answer."""
    registry = CollectorRegistry()
    for name, (about, value) in gauges.items():
        Gauge(f"{prefix}_{name}", about, registry=registry).set(value)
    for name, (about, value) in counters.items():
        Counter(f"{prefix}_{name}", about, registry=registry).inc(value)
    return generate_latest(registry)


def _server_metrics(connections: OpenConnections, budget: BodyBudget, lag: LoopLag) -> bytes:
    gauges = {
        "connections": ("open connections", len(connections)),
        "body_bytes": ("bytes of large bodies that arrive or are being handled", budget.held),
        "loop_lag_max_seconds": ("longest lag of the event loop in the last 30 s", lag.max_ms / 1000),
        "loop_lag_p99_seconds": ("99th percentile of the same", lag.p99_ms / 1000),
    }
    counters = {
        "connections_displaced": ("waiting connections closed in favour of new ones", connections.displaced),
        "connections_refused": ("connections refused because all were being served", connections.refused),
    }
    return prometheus_exposition("longshore_http", gauges, counters)
