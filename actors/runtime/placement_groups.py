"""Typed access to Ray's placement groups: resources on nodes that are reserved before anything starts.

A group is reserved as a whole or not at all, so two runs that start on one cluster at the same time never get half of
what they need.  A reservation ends with :func:`release_bundles`, or with the Ray job that holds it.
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
"""The label by which Ray identifies each node."""


class PlacementError(InfraError):
    """The cluster does not have the requested resources free."""


@dataclass(frozen=True, slots=True)
class NodeShare:
    """Resources of one node."""

    node_id: str
    cpus: float
    gpus: float = 0.0

    @property
    def resources(self) -> dict[str, float]:
        amounts = {"CPU": self.cpus, "GPU": self.gpus}
        return {name: amount for name, amount in amounts.items() if amount > 0}


@dataclass(frozen=True, slots=True)
class PlacementBundle:
    """A reserved share of a node, in which an actor may be started."""

    group: PlacementGroup
    index: int


async def reserve_bundles(name: str, shares: Sequence[NodeShare], timeout_s: float) -> list[PlacementBundle]:
    """Reserve one bundle for each share.  Raises :class:`PlacementError`; then, and on cancellation, nothing stays
    reserved."""
    untyped = cast("Any", util)
    group: PlacementGroup = untyped.placement_group(
        [each.resources for each in shares],
        strategy="PACK",
        name=name,
        bundle_label_selector=[{_NODE: each.node_id} for each in shares],
    )
    reserved = False
    try:
        reserved = await asyncio.to_thread(group.wait, timeout_s)
    finally:
        if not reserved:  # removing the group also ends the waiting thread
            release_bundles([PlacementBundle(group, 0)])
    if not reserved:
        raise PlacementError(f"the cluster had no resources for {name} within {timeout_s:g} s: other jobs hold them")
    return [PlacementBundle(group, index) for index in range(len(shares))]


def release_bundles(bundles: Sequence[PlacementBundle]) -> None:
    """Release everything that the bundles' groups hold.  An actor that still runs in one ends."""
    untyped = cast("Any", util)
    for bundle in bundles:
        if bundle.index == 0:
            untyped.remove_placement_group(bundle.group)
