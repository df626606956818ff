"""State shared by the parts of one engine: its current server, its state, its request queue, and the server's lock.

Whoever replaces, pauses or offloads the server holds ``lock``.  Requests are dispatched only in state ``SERVING``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from actors.engines.memory_lease import MemoryLease
from actors.engines.messages import EngineState
from actors.engines.routing.request_queue import RequestQueue
from actors.engines.server.active_server import ActiveServer
from actors.engines.settings import EngineSpec
from protocol.activity import ActivityLog
from protocol.events import EventLog
from protocol.weights import NO_VERSION, WeightVersion


@dataclass(slots=True)
class PauseRecord:
    """A pause of the server."""

    ms: float = 0.0
    """Duration in milliseconds; known at its end."""
    requests: int = 0
    """Requests that were in flight."""


class ServerSlot:
    """Holder of one engine's server.  ``serving`` is None until the first one has started."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec, self.settings, self.name = spec, spec.settings, spec.name
        self.events = EventLog(spec.run_dir, spec.name, spec.node)
        self.activity = ActivityLog(spec.run_dir, spec.name, "engine")
        self.state, self.error = EngineState.NEW, ""
        self.queue = RequestQueue(
            spec.name,
            max_running=self.settings.max_running,
            max_queued=self.settings.queue_limit,
            context_length=spec.context_length,
            deterministic=self.settings.deterministic,
            prefix_reuse=self.settings.prefix_reuse,
            state=lambda: self.state,
            sending=lambda: self.activity.track("generating"),
        )
        self.serving: ActiveServer | None = None
        self.lock = asyncio.Lock()
        self.memory_lease: MemoryLease | None = None
        """Set while a learner has, or is about to get, the server's memory."""
        self.group: asyncio.TaskGroup | None = None
        """The engine's tasks; None while it does not run."""
        self._paused_since: float | None = None

    @property
    def version(self) -> WeightVersion:
        """The version that the server is confirmed to serve; none before the first server."""
        return self.serving.confirmed.manifest.version if self.serving else NO_VERSION

    @property
    def is_paused(self) -> bool:
        """True while the server is paused for new weights."""
        return self._paused_since is not None

    @property
    def paused_s(self) -> float:
        """Seconds since the server was paused for new weights; 0 if it is not paused."""
        return 0.0 if self._paused_since is None else time.monotonic() - self._paused_since

    def serve(self, serving: ActiveServer) -> None:
        """Dispatch requests to a healthy server; a failed one is left to the supervisor."""
        if not serving.failure.done():
            self.state = EngineState.SERVING
            self.queue.open(serving)

    @contextmanager
    def paused(self, serving: ActiveServer) -> Generator[PauseRecord]:
        """Dispatch no request during the block, and do not judge the server's health.  The caller holds ``lock``."""
        record = PauseRecord(requests=self.queue.counters.running)
        self.queue.dispatch_open.clear()
        self.state, begun = EngineState.UPDATING, time.monotonic()
        self._paused_since = begun
        try:
            with self.activity.track("paused"):
                yield record
        finally:
            self._paused_since = None
            if self.state is EngineState.UPDATING:
                self.serve(serving)
            record.ms = (time.monotonic() - begun) * 1000
