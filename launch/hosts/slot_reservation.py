"""What each role holds of a cluster: a group of places for the learner, one for the engines, one for the workers.

A place is a GPU or more where that is what computes, and a processor, as far as the node has one for each that is put
there: who else uses the cluster is kept from what the run needs, and starts beside it where there is room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from actors.runtime.placement_groups import NodeShare, PlacementBundle, PlacementError, release_bundles, reserve_bundles
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import engine_gpus
from protocol.errors import UserError

LEARNER_ROLE = "learner"
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class ActorSlot:
    """Of one actor, or of all ranks of the learner."""

    node: ClusterNode
    gpus: int = 0


def plan_slots(
    config: RunConfig, head: ClusterNode, engines: Mapping[str, ClusterNode], workers: Mapping[str, ClusterNode]
) -> dict[str, dict[str, ActorSlot]]:
    """Role → actor → its seat."""
    learner, gpus = config.learner, engine_gpus(config)
    ranks = learner.ranks if learner.device == "cuda" else 0
    return {
        LEARNER_ROLE: {LEARNER_ROLE: ActorSlot(head, ranks + (config.engine.broadcast_device == "cuda"))},
        "engines": {name: ActorSlot(home, gpus) for name, home in engines.items()},
        "workers": {name: ActorSlot(home) for name, home in workers.items()},
    }


def resource_shares(by_role: Mapping[str, Mapping[str, ActorSlot]]) -> dict[str, dict[str, NodeShare]]:
    """The same as shares of nodes; without those that would hold nothing."""
    taken = Counter(seat.node.ray_id for actors in by_role.values() for seat in actors.values())
    shares = {
        role: {
            name: NodeShare(seat.node.ray_id, min(1.0, seat.node.cpus / taken[seat.node.ray_id]), seat.gpus)
            for name, seat in actors.items()
        }
        for role, actors in by_role.items()
    }
    return {role: {name: share for name, share in actors.items() if share.resources} for role, actors in shares.items()}


@asynccontextmanager
async def reserve_slots(
    run: str, by_role: Mapping[str, Mapping[str, ActorSlot]]
) -> AsyncGenerator[dict[str, PlacementBundle]]:
    """Actor → its place, as long as the context is.  Raises UserError where there is no room."""
    places: dict[str, PlacementBundle] = {}
    try:
        for role, actors in resource_shares(by_role).items():
            if actors:
                held_now = await reserve_bundles(f"{run}/{role}", list(actors.values()), _PATIENCE_S)
                places |= dict(zip(actors, held_now, strict=True))
        yield places
    except PlacementError as error:
        raise UserError(f"{error}: `ray status` shows who does; wait for them, or ask for less") from error
    finally:
        release_bundles(list(places.values()))
