"""What the daemon made for a call whose answer never came: a container that nobody will start, a copy that nobody uses.

Neither has a deadline.  Both carry the labels of who asked.  While a call has gone unanswered lately, they are looked
for, and removed when nobody has claimed them for longer than anybody could take to.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from sandbox.docker import committed_images
from sandbox.docker.engine import DockerEngine, DockerEngineError

LOOK_INTERVAL_S = 20.0
LOOK_WINDOW_S = 1800.0
"""After the call; a daemon that comes back later has forgotten it."""


class OrphanRemover:
    """Of one pool in one process, whose ``labels`` nobody else's containers carry."""

    def __init__(
        self,
        engine: DockerEngine,
        labels: Mapping[str, str],
        claim_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``claim_s``: longer than it takes from a container's creation to its start, or its removal."""
        self._engine, self._labels, self._claim_s, self._now = engine, labels, claim_s, now
        self._since: dict[str, float] = {}
        """Unclaimed → since when."""

    async def run(self) -> None:
        """For ever."""
        while True:
            with contextlib.suppress(DockerEngineError):  # it is looked for again
                await self.remove_orphans()
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def remove_orphans(self) -> int:
        """Remove what has been unclaimed for too long; how many.  Raises EngineError."""
        now, asked_at = self._now(), self._engine.unanswered_at
        if asked_at is None or now - asked_at > LOOK_WINDOW_S:
            self._since.clear()
            return 0
        containers = {each.id for each in await self._engine.containers(self._labels) if each.state == "created"}
        copies = {
            each.image for each in await committed_images.list_committed_images(self._engine, self._labels)
        } - self._engine.committed_images
        self._since = {each: self._since.get(each, now) for each in containers | copies}
        late = [each for each, since in self._since.items() if now - since > self._claim_s]
        for each in late:
            await (
                committed_images.remove_committed_image(self._engine, each)
                if each in copies
                else self._engine.remove(each)
            )
        return len(late)
