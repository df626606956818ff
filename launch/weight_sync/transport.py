"""Brings published weights to where an engine reads them.

On the learner's machine that is the learner's own folder; elsewhere it is a copy that the engine's machine makes from
what changed (:mod:`actors.weight_transport.host_cache`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.engines.interface import Engine
from actors.runtime.remote import Remote
from actors.weight_transport.host_cache import HostWeightCache
from protocol.weights import NO_VERSION, WeightManifest


@dataclass(frozen=True, slots=True)
class WeightTransport:
    copies: dict[str, Remote[HostWeightCache]] = field(default_factory=dict[str, Remote[HostWeightCache]])
    """Engine's actor → its machine's copies; one that is not here reads the learner's folder."""
    pinned_engines: set[str] = field(default_factory=set[str])
    """Engines that are given versions which the others are not: no broadcast waits for them."""

    async def deliver(
        self, engine: Remote[Engine], manifest: WeightManifest, served: WeightManifest | None, *, refetch: bool = False
    ) -> WeightManifest:
        """``manifest`` as the engine is to be told of it: its files are on the engine's machine.  Every engine serves
        ``served``; with ``anew`` the engine has refused the files that are there.  Raises InfraError."""
        copies = self.copies.get(engine.name)
        if copies is None:
            return manifest
        version = served.version if served else NO_VERSION
        return await copies.call(
            HostWeightCache.fetch_version, manifest, version, anew=refetch, alone=engine.name in self.pinned_engines
        )

    def add_pinned_engine(self, engine: str, copies: Remote[HostWeightCache]) -> None:
        """``engine`` reads there from now on, what no other may be given."""
        self.copies[engine] = copies
        self.pinned_engines.add(engine)

    def remove_engine(self, engine: str) -> None:
        """It is gone."""
        self.copies.pop(engine, None)
        self.pinned_engines.discard(engine)
