"""Removes what a pool no longer uses: when it opens, after a restart of its server, and when it closes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

from protocol.errors import InfraError
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import NETWORK_LABEL, POOL_LABEL, POOL_PROCESS_LABEL
from sandbox.pool.container_template import ContainerTemplate
from sandbox.pool.orphans import LabelledResource, ResourceKind, remove_abandoned, remove_orphans
from sandbox.pool.settings import PoolSettings
from sandbox.session.sandbox_session import SandboxSession

_POLL_S = 0.05


class PoolCleanup:
    """The clean-up of one pool in one process."""

    def __init__(
        self,
        engine: DockerEngine,
        settings: PoolSettings,
        template: ContainerTemplate,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._engine, self._settings, self._template, self._now = engine, settings, template, now

    async def remove_abandoned(self) -> int:
        """Remove this pool's containers, committed images, volumes and networks whose owner is proved dead or that have
        long expired.

        Returns how many were removed.  Raises DockerEngineError.
        """
        return await remove_abandoned(self._engine, POOL_LABEL, self._settings.name, self._now)

    async def remove_orphans(self, sessions: Iterable[SandboxSession]) -> int:
        """Remove what carries this pool's name, was not made by this process and does not belong to ``sessions``.

        Returns how many were removed.  Raises DockerEngineError.
        """
        used = tuple(sessions)
        containers = {session.container for session in used}
        networks = {session.spec.network for session in used if session.spec is not None}

        def is_orphan(each: LabelledResource) -> bool:
            if each.labels.get(POOL_PROCESS_LABEL) == self._template.process_id:
                return False
            match each.kind:
                case ResourceKind.CONTAINER:
                    return each.name not in containers and each.labels.get(NETWORK_LABEL) not in networks
                case ResourceKind.VOLUME:
                    return each.labels.get(NETWORK_LABEL) not in networks
                case ResourceKind.NETWORK:
                    return each.name not in networks
                case ResourceKind.IMAGE:
                    return True

        return await remove_orphans(self._engine, {POOL_LABEL: self._settings.name}, is_orphan)

    async def drain(self) -> None:
        """Wait until the daemon has removed what this process started, and remove the rest."""
        own = {POOL_PROCESS_LABEL: self._template.process_id}
        give_up = time.monotonic() + self._settings.drain_s
        ended = {"created"}  # a container that never ran has no deadline of its own
        if self._template.live_restore:  # such a daemon does not remove ended containers
            ended |= {"exited", "dead"}
        with contextlib.suppress(InfraError):  # if the daemon does not answer, containers end at their own deadline
            while left := await self._engine.containers(own):
                late = time.monotonic() > give_up
                for each in left:
                    if late or each.state in ended:
                        await self._engine.remove(each.id)
                await asyncio.sleep(_POLL_S)
