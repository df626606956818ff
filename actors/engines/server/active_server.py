"""The server that an engine uses, with its confirmed weights and its failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from actors.engines.server.process import SGLangServer
from protocol.weights import WeightManifest, WeightVersion


@dataclass(frozen=True, slots=True)
class ConfirmedWeights:
    """Weights that a server was confirmed to hold."""

    manifest: WeightManifest
    checksum: str
    """The server's own checksum of the bits in use, equal for equal weights on servers with equal settings.  For an
    adapter it is the base model's."""
    adapter: str = ""
    """The server's name of the adapter; empty if the version is the server's own weights."""


@dataclass(slots=True, eq=False)
class ActiveServer:
    """A running server.  Requests reach it while ``dispatch_open`` is set and ``failure`` is pending."""

    server: SGLangServer
    confirmed: ConfirmedWeights
    dispatch_open: asyncio.Event
    """Set while requests may be dispatched; it belongs to the engine's queue."""
    failure: asyncio.Future[str]
    """Resolves with the reason once the server has to be replaced."""
    on_weight_change: Callable[[WeightVersion], None]
    """Called before a paused server continues its requests with other weights."""

    def confirm_weights(self, manifest: WeightManifest, checksum: str) -> None:
        """Record that the paused server was confirmed to hold these weights."""
        self.confirmed = ConfirmedWeights(manifest, checksum)
        self.on_weight_change(manifest.version)

    def mark_failed(self, why: str) -> None:
        """Close dispatch and let the supervisor replace the server.  The first reason counts."""
        if not self.failure.done():
            self.failure.set_result(why)
            self.dispatch_open.clear()

    @contextmanager
    def mark_failed_on_error(self, why: str) -> Generator[None]:
        """Mark the server as failed if an error or a cancellation ends the block, which is raised again."""
        try:
            yield
        except BaseException:
            self.mark_failed(why)
            raise
