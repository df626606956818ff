"""How published weights come to where an engine reads them: as the learner's own folder where it is on the learner's
machine, and elsewhere as a copy that its machine makes from what changed (:mod:`actors.weights.copies`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.engines.engine import Engine
from actors.remote import Remote
from actors.weights.copies import HostCopies
from protocol.weights import NO_VERSION, WeightManifest


@dataclass(frozen=True, slots=True)
class Delivery:
    copies: Mapping[str, Remote[HostCopies]] = field(default_factory=dict[str, Remote[HostCopies]])
    """Engine's actor → its machine's copies; one that is not here reads the learner's folder."""

    async def to(
        self, engine: Remote[Engine], manifest: WeightManifest, served: WeightManifest | None, *, anew: bool = False
    ) -> WeightManifest:
        """``manifest`` as the engine is to be told of it: its files are on the engine's machine.  Every engine serves
        ``served``; with ``anew`` the engine has refused the files that are there.  Raises InfraError."""
        copies = self.copies.get(engine.name)
        if copies is None:
            return manifest
        return await copies.call(HostCopies.fetch, manifest, served.version if served else NO_VERSION, anew=anew)
