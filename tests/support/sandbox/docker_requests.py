"""The requests that a client of the Docker daemon makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp

from sandbox.docker.engine import DockerEngine


def on_docker_request(engine: DockerEngine, listener: Callable[[str], None]) -> None:
    """Call ``listener`` with the path of each request that ``engine`` makes from now on, before it is sent."""

    async def started(_: aiohttp.ClientSession, __: Any, request: aiohttp.TraceRequestStartParams) -> None:
        listener(request.url.path)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(started)
    trace.freeze()
    engine.docker.session.trace_configs.append(trace)
