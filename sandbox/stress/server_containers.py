"""Counts a pool server's own containers, apart from those of its clients."""

from __future__ import annotations

from sandbox.docker.engine import DockerEngine
from sandbox.docker.inventory import DockerInventory
from sandbox.docker.labels import POOL_LABEL
from sandbox.stress.server_metrics import PoolServerMetrics


class ServerOwnContainers:
    """Counts new containers of a pool server that no client uses: warm ones that replaced used ones."""

    def __init__(
        self, engine: DockerEngine, metrics: PoolServerMetrics, before: DockerInventory, live_before: int
    ) -> None:
        self._engine, self._metrics = engine, metrics
        self._before, self._live_before = before, live_before
        self.pool = ""
        """Name of the server's pool, once one of its containers has been seen."""

    async def count(self) -> int:
        """Count them. Raises DockerEngineError, UserError if the server does not answer."""
        containers = await self._engine.containers({POOL_LABEL: self.pool}) if self.pool else ()
        old = sum(each.id in self._before.containers for each in containers)
        return max(0, int(await self._metrics.read("sandboxes_warm")) + self._live_before - old)
