"""A list of what a Docker engine holds, for proofs that nothing leaked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DockerInventory:
    """The ids of everything that could leak; an inventory before and one after prove that nothing did."""

    containers: frozenset[str]
    networks: frozenset[str]
    volumes: frozenset[str]
    images: frozenset[str] = frozenset()
    """Committed images only; anybody may build or pull other images meanwhile."""

    def new_since(self, before: DockerInventory) -> DockerInventory:
        """Return what is in this inventory and not in ``before``."""
        return DockerInventory(
            self.containers - before.containers,
            self.networks - before.networks,
            self.volumes - before.volumes,
            self.images - before.images,
        )

    def __len__(self) -> int:
        return len(self.containers) + len(self.networks) + len(self.volumes) + len(self.images)
