"""Providers of sandboxes that run harnesses, by a name of their kind."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandbox.agent_programs import AgentPrograms
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.providers.interface import SandboxProvider
from tests.support.network.http_servers import provider_of_pool
from tests.support.sandbox.daytona_provider import fake_daytona_provider


@asynccontextmanager
async def open_provider(
    host: SandboxHost, kind: str, programs: AgentPrograms | None = None
) -> AsyncGenerator[SandboxProvider]:
    """Open a provider of sandboxes with ``programs``: ``daytona``, or a kind of
    :func:`~tests.support.network.http_servers.provider_of_pool`; no container is left."""
    if kind == "daytona":
        async with fake_daytona_provider(host, programs) as provider:
            yield provider
        return
    pool = PoolSettings(f"test-{uuid.uuid4().hex}", "test", 1, agent_programs=programs if kind == "local" else None)
    async with SandboxPool(pool, host) as sandboxes, provider_of_pool(sandboxes, kind, programs) as provider:
        yield provider
    async with DockerEngine(host.docker_url) as engine:
        assert not await engine.containers({POOL_LABEL: pool.name})
