"""The interface of an engine to the rest of longshore.

The implementation is :class:`actors.engines.engine.SGLangEngine`; benches and tests have others.  As an actor it is
called by these names, ``await engine.call(Engine.load_weights, manifest, 60.0)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from actors.engines.messages import (
    EngineSnapshot,
    EngineStatistics,
    EngineStatus,
    GenerateReply,
    GenerateRequest,
    OnPartialReply,
    PartialReply,
    WeightLoadReport,
)
from protocol.weights import WeightManifest, WeightVersion


class Engine(Protocol):
    """One serving engine.  ``start`` once, ``stop`` at the end; everything else in between, from any number of tasks.
    Errors are those of :mod:`actors.engines.messages`."""

    async def start(self, manifest: WeightManifest) -> EngineStatus:
        """Start the server on these weights.  Raises :class:`EngineStartError` or :class:`InvalidWeights`."""
        ...

    async def stop(self) -> None:
        """End the server and every request.  Does nothing on an engine that does not run."""
        ...

    async def status(self) -> EngineStatus: ...

    async def statistics(self) -> EngineStatistics: ...

    async def drain(self, patience_s: float) -> bool:
        """Dispatch no request, let those in flight end, and replace the server; returns once the next one serves.

        False if some did not end within ``patience_s``: they continue on the next server behind the tokens received.
        Raises :class:`EngineUnavailable` if there is no server to drain."""
        ...

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        """Sample one continuation.  ``watch`` is for callers in this process.

        Raises :class:`RequestRefused` or :class:`EngineBusy` at once, and :class:`EngineUnavailable` after the
        deadline, or after ``patience_s`` without a server.
        """
        ...

    async def partial_replies(self, known: Mapping[str, int]) -> dict[str, PartialReply]:
        """Return the tokens received for these requests, by name, without the first ones that the caller knows already,
        of which ``known`` has the number.  Requests that are not in flight are left out."""
        ...

    async def snapshot(self, known: Mapping[str, int]) -> EngineSnapshot:
        """Return :meth:`partial_replies` of a router's requests, and the engine's load."""
        ...

    async def stage_weights(self, manifest: WeightManifest, deadline_s: float) -> None:
        """Do the part of :meth:`load_weights` that needs no pause.  Raises :class:`InvalidWeights` or
        :class:`WeightLoadError`."""
        ...

    async def load_weights(
        self, manifest: WeightManifest, deadline_s: float, *, wait_for_restart: bool = True
    ) -> WeightLoadReport:
        """Serve these weights, or take the memory back with them after :meth:`offload_memory`.  Returns at once if
        they are served already.  ``wait_for_restart``: wait for a server that restarts.

        Raises :class:`InvalidWeights` (the server was not told) or :class:`WeightLoadError`: then the engine serves,
        or will serve, the last confirmed weights, or the new ones if their load ended after the deadline.
        """
        ...

    async def restart_if_checksum(self, version: WeightVersion, checksum: str) -> None:
        """Replace the server if it holds ``version`` with this checksum, which may be wrong; else do nothing."""
        ...

    async def offload_memory(self, lease_s: float, deadline_s: float) -> None:
        """Give up the server's memory until the next :meth:`load_weights`, or until ``lease_s`` are over.

        Called again meanwhile, it renews the lease.  Raises :class:`WeightLoadError` if the memory is not free by
        ``deadline_s``; it may be later."""
        ...
