"""Removes what the daemon created for a call that got no answer: a container that nothing starts, an unused image.

Neither has a deadline, and both carry the labels of the pool that made the call. After an unanswered call, the pool
looks for them, and removes those that stay unused for longer than any start takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError
from sandbox.pool.orphans import LabelledResource, ResourceKind, list_resources, remove_resource

LOOK_INTERVAL_S = 20.0
LOOK_WINDOW_S = 1800.0
"""Seconds to look after the unanswered call; a daemon that comes back later has forgotten it."""


class UnansweredCallCleanup:
    """Removes the orphans of one pool in one process; only its own containers carry its ``labels``."""

    def __init__(
        self,
        engine: DockerEngine,
        labels: Mapping[str, str],
        claim_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``claim_s`` must exceed the time from a container's creation to its start or removal."""
        self._engine, self._labels, self._claim_s, self._now = engine, labels, claim_s, now
        self._found_at: dict[LabelledResource, float] = {}

    async def run(self) -> None:
        """Look for orphans until cancelled."""
        while True:
            with contextlib.suppress(DockerEngineError):  # the next look finds them
                await self.remove_orphans()
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def remove_orphans(self) -> int:
        """Remove what has been unused for too long. Returns the number removed. Raises DockerEngineError."""
        now, unanswered_at = self._now(), self._engine.unanswered_at
        if unanswered_at is None or now - unanswered_at > LOOK_WINDOW_S:
            self._found_at.clear()
            return 0
        kinds = (ResourceKind.CONTAINER, ResourceKind.IMAGE)
        found = [each async for each in list_resources(self._engine, self._labels, kinds) if self._is_orphan(each)]
        self._found_at = {each: self._found_at.get(each, now) for each in found}
        late = [each for each, since in self._found_at.items() if now - since > self._claim_s]
        return sum([await remove_resource(self._engine, each) for each in late])

    def _is_orphan(self, resource: LabelledResource) -> bool:
        if resource.kind is ResourceKind.CONTAINER:
            return resource.state == "created"
        return resource.name not in self._engine.committed_images
