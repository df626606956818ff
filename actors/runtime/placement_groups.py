"""Places on nodes that are held before anything starts: the typed seam to Ray's placement groups.

A group is held whole or not at all, so that of two runs that start on one cluster at a time neither gets half of what
it needs.  It ends with :func:`give_back`, or with the Ray job that holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ray import util
from ray.util.placement_group import PlacementGroup

from protocol.errors import InfraError

_NODE = "ray.io/node-id"
"""Ray's own label of each node."""


class PlacementError(InfraError):
    """The cluster has not so much to spare."""


@dataclass(frozen=True, slots=True)
class NodeShare:
    """A share of one node."""

    node_id: str
    cpus: float
    gpus: float = 0.0

    @property
    def resources(self) -> dict[str, float]:
        named = {"CPU": self.cpus, "GPU": self.gpus}
        return {name: amount for name, amount in named.items() if amount > 0}


@dataclass(frozen=True, slots=True)
class PlacementBundle:
    """Where an actor may be started."""

    group: PlacementGroup
    index: int


async def reserve_bundles(name: str, shares: Sequence[NodeShare], timeout_s: float) -> list[PlacementBundle]:
    """One place for each.  Raises :class:`NoPlace`; then, and where it is cancelled, none is held."""
    untyped = cast("Any", util)
    group: PlacementGroup = untyped.placement_group(
        [each.resources for each in shares],
        strategy="PACK",
        name=name,
        bundle_label_selector=[{_NODE: each.node_id} for each in shares],
    )
    held = False
    try:
        held = await asyncio.to_thread(group.wait, timeout_s)
    finally:
        if not held:  # which ends the thread, too
            release_bundles([PlacementBundle(group, 0)])
    if not held:
        raise PlacementError(f"the cluster has no place for {name} within {timeout_s:g} s: others hold what it needs")
    return [PlacementBundle(group, index) for index in range(len(shares))]


def release_bundles(bundles: Sequence[PlacementBundle]) -> None:
    """All that their groups hold.  An actor that is still there ends."""
    untyped = cast("Any", util)
    for place in bundles:
        if place.index == 0:
            untyped.remove_placement_group(place.group)
