"""A provider of Daytona's sandboxes over a fake Daytona: a server on loopback that speaks its published API, with the
types of its client packages, over plain containers without a PID 1 or a toolchain of ours.

Its official SDK is the client, where pip can get it; else a fake of that, over the same containers.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from sandbox.agent_programs import AgentPrograms
from sandbox.docker.engine import DockerEngine
from sandbox.host_record import SandboxHost
from sandbox.providers.daytona.provider import DaytonaProvider, daytona_provider
from sandbox.providers.daytona.sdk import DaytonaSdk
from tests.support.fakes.fake_daytona import FakeSdk
from tests.support.sandbox.daytona_containers import DaytonaContainer
from tests.support.sandbox.daytona_package import daytona_package


@asynccontextmanager
async def fake_daytona_provider(
    host: SandboxHost, programs: AgentPrograms | None = None
) -> AsyncGenerator[DaytonaProvider]:
    """Open the provider, whose sandboxes have ``programs``; at the end it has left no container."""
    labels = {"longshore.test": f"daytona-{uuid.uuid4().hex}"}
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(DockerEngine(host.docker_url))
        package = stack.enter_context(daytona_package(host.home))

        async def make(*, network_block_all: bool | None) -> DaytonaContainer:
            return await DaytonaContainer.start(engine, host.base_image, labels, network=not network_block_all)

        if package is None:
            sdk: DaytonaSdk = FakeSdk(lambda params: make(network_block_all=params.network_block_all))
            options = {}
        else:
            from tests.support.fakes.fake_daytona_server import KEY, serve_daytona

            server = await stack.enter_async_context(
                serve_daytona(lambda asked: make(network_block_all=asked.network_block_all))
            )
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("DAYTONA_API_KEY", KEY)
            sdk, options = package, {"api_url": f"{server.url}/api"}
        async with daytona_provider(
            {"image": host.base_image, **options}, sdk, programs=programs, home=host.home
        ) as opened:
            yield opened
        async with asyncio.timeout(60):
            while await engine.containers(labels):  # noqa: ASYNC110  the daemon removes them in its own time
                await asyncio.sleep(0.1)
