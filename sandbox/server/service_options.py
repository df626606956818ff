"""The options of a service with a pool on this machine, the pool server or the environment service, and its life."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

from pydantic import Field
from starlette.applications import Starlette

from protocol.cli.arguments import Count, Flag, Port, option, setting
from sandbox.egress_proxy.options import EgressProxyOptions
from sandbox.host_record import HostSettings, current_host, require_answering_engine
from sandbox.http.auth import Access, AccessOptions
from sandbox.http.serving import bind_listener, run_server
from sandbox.images.registry_options import RegistryOptions
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.pool.settings import SERVICE_LIFETIME_S, ContainerSettings, PoolSettings
from sandbox.server.journal import StateDirectory


class DrainableService(Protocol):
    async def drain(self, within_s: float) -> None: ...


ServiceT = TypeVar("ServiceT", bound=DrainableService)
OpenService = Callable[[], AbstractAsyncContextManager[ServiceT]]


class ServiceOptions(EgressProxyOptions, RegistryOptions, AccessOptions):
    """Options of the service's address, its access control and its pool."""

    port: Port = 0
    """Port to listen on; 0 for a free one."""
    warm: Count = 0
    """Size of the warm pool, per image and limits."""
    image: Annotated[str, option("IMAGE"), setting(ContainerSettings, "image")] = ""
    max_lifetime_s: Annotated[float, option("S"), Field(ge=1), setting(ContainerSettings, "max_lifetime_s")] = (
        SERVICE_LIFETIME_S
    )
    heartbeat_timeout_s: Annotated[
        float, option("S"), Field(ge=1), setting(ContainerSettings, "heartbeat_timeout_s")
    ] = ContainerSettings().heartbeat_timeout_s
    disk_loop: Flag = False
    """Give each sandbox its own loop-mounted file system if the engine has no disk quota."""
    state: Annotated[Path | None, option("FOLDER")] = None
    """Folder for state that survives a crash; default: in LONGSHORE_HOME, by port."""

    def serve(
        self,
        kind: str,
        slots: int,
        create_app: Callable[[OpenService[ServiceT], Access], Starlette],
        open_service: Callable[[SandboxPool, StateDirectory], AbstractAsyncContextManager[ServiceT]],
    ) -> int:
        """Serve until SIGINT or SIGTERM; then the service is drained.  Returns the exit code.  Raises UserError."""
        access = self.access()
        machine = HostSettings.from_environment()
        host = require_answering_engine(current_host(machine))
        opened: list[ServiceT] = []

        @asynccontextmanager
        async def open_pool() -> AsyncGenerator[ServiceT]:
            settings = self._pool_settings(f"{kind}-{state.id}", slots)
            async with SandboxPool(settings, host) as pool, open_service(pool, state) as service:
                opened.append(service)
                yield service

        async def drain(within_s: float) -> None:
            for service in opened:
                await service.drain(within_s)

        folder = self.state or machine.home / kind / str(self.port)
        with StateDirectory(folder) as state, bind_listener(self.host, self.port) as listener:
            return run_server(create_app(open_pool, access), listener, drain)

    def _pool_settings(self, name: str, slots: int) -> PoolSettings:
        """Return the settings of the pool.  ``name`` identifies the service, even after a restart: an engine may have
        several."""
        return PoolSettings(
            name=name,
            run_id=name,
            capacity=slots + self.warm,
            start_concurrency=os.cpu_count() or 2,
            containers=self.proxy_settings(
                ContainerSettings,
                image=self.image,
                allow_registries=self.allow_registry,
                heartbeat_timeout_s=self.heartbeat_timeout_s,
                max_lifetime_s=self.max_lifetime_s,
            ),
            warm_per_kind=self.warm,
            disk_loop=self.disk_loop,
            owner=f"server:{name}",
        )
