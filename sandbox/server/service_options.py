"""The command-line options of a service with a pool on this machine: the pool server or the environment service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from protocol.cli.arguments import Count, Flag, option
from sandbox.egress_proxy.options import EgressProxyOptions
from sandbox.http.auth import AccessOptions
from sandbox.pool.settings import ContainerSettings, PoolSettings


class ServiceOptions(EgressProxyOptions, AccessOptions):
    """Options of the service's address, its access control and its pool."""

    warm: Count = 0
    """Size of the warm pool, per image and limits."""
    image: Annotated[str, option("IMAGE")] = ""
    """Default image of tasks."""
    max_s: Annotated[float, option("S"), Field(ge=1)] = 7200.0
    """Maximum lifetime of a sandbox, in seconds."""
    deadline_s: Annotated[float, option("S"), Field(ge=1)] = 60.0
    """Seconds that a sandbox survives this service."""
    disk_loop: Flag = False
    """Give each sandbox its own loop-mounted file system if the engine has no disk quota."""
    state: Annotated[Path | None, option("FOLDER")] = None
    """Folder for state that survives a crash; default: in LONGSHORE_HOME, by port."""

    def pool_settings(self, name: str, slots: int) -> PoolSettings:
        """Return the settings of the pool.  ``name`` identifies the service, even after a restart: an engine may have
        several."""
        return PoolSettings(
            pool=name,
            run_id=name,
            capacity=slots + self.warm,
            start_concurrency=os.cpu_count() or 2,
            containers=self.proxy_settings(
                ContainerSettings, image=self.image, deadline_s=self.deadline_s, max_s=self.max_s
            ),
            warm=self.warm,
            disk_loop=self.disk_loop,
            owner=f"server:{name}",
        )
