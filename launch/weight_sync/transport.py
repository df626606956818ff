"""Makes published weights available where an engine reads them.

On the learner's machine that is the learner's folder; elsewhere it is a copy in the machine's weight cache
(:mod:`actors.weight_transport.host_cache`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.engines.interface import Engine
from actors.runtime.remote import Remote
from actors.weight_transport.host_cache import HostWeightCache
from protocol.weights import NO_VERSION, WeightManifest


@dataclass(frozen=True, slots=True)
class WeightTransport:
    copies: dict[str, Remote[HostWeightCache]] = field(default_factory=dict[str, Remote[HostWeightCache]])
    """Engine's actor → its machine's weight cache; an engine without one reads the learner's folder."""
    pinned_engines: set[str] = field(default_factory=set[str])
    """Engines that serve versions which the others do not: no broadcast waits for them."""

    async def ensure_local_copy(
        self, engine: Remote[Engine], manifest: WeightManifest, served: WeightManifest | None, *, refetch: bool = False
    ) -> WeightManifest:
        """Copy the files of ``manifest`` to the engine's machine and return the manifest with their path.

        Every engine serves at least ``served``; ``refetch`` replaces files that the engine has refused.  Raises
        InfraError."""
        copies = self.copies.get(engine.name)
        if copies is None:
            return manifest
        version = served.version if served else NO_VERSION
        return await copies.call(
            HostWeightCache.fetch_version, manifest, version, refetch=refetch, pinned=engine.name in self.pinned_engines
        )

    def add_pinned_engine(self, engine: str, copies: Remote[HostWeightCache]) -> None:
        """Let ``engine`` read ``copies``, with versions that no other engine gets."""
        self.copies[engine] = copies
        self.pinned_engines.add(engine)

    def remove_engine(self, engine: str) -> None:
        """Forget an engine."""
        self.copies.pop(engine, None)
        self.pinned_engines.discard(engine)
