"""An inventory of what a Docker engine holds, to prove that nothing leaked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DockerInventory:
    """Ids of everything that could leak; comparing an inventory before with one after shows a leak."""

    containers: frozenset[str]
    networks: frozenset[str]
    volumes: frozenset[str]
    images: frozenset[str] = frozenset()
    """Committed images only: anyone may build or pull other images meanwhile."""

    def new_since(self, before: DockerInventory) -> DockerInventory:
        """Return what is in this inventory but not in ``before``."""
        return DockerInventory(
            self.containers - before.containers,
            self.networks - before.networks,
            self.volumes - before.volumes,
            self.images - before.images,
        )

    def __len__(self) -> int:
        return len(self.containers) + len(self.networks) + len(self.volumes) + len(self.images)
