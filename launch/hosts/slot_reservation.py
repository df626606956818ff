"""Reserves the resources of a cluster for a run: one placement group for the learner, the engines, the judge's
engines and the workers each.

A slot holds the GPUs that its actor needs, and a CPU as far as the node has one for each of its actors, so that other
users of the cluster can only take what the run leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from actors.runtime.placement_groups import NodeShare, PlacementBundle, PlacementError, release_bundles, reserve_bundles
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import engine_gpus, judge_gpus
from protocol.errors import UserError

LEARNER_ROLE = "learner"
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class ActorSlot:
    """The resources of one actor, or of all ranks of the learner."""

    node: ClusterNode
    gpus: int = 0


def plan_slots(
    config: RunConfig,
    head: ClusterNode,
    engines: Mapping[str, ClusterNode],
    judges: Mapping[str, ClusterNode],
    workers: Mapping[str, ClusterNode],
) -> dict[str, dict[str, ActorSlot]]:
    """Return role → actor → slot."""
    learner, gpus = config.learner, engine_gpus(config)
    ranks = learner.ranks if learner.device == "cuda" else 0
    return {
        LEARNER_ROLE: {LEARNER_ROLE: ActorSlot(head, ranks + (config.engine.broadcast_device == "cuda"))},
        "engines": {name: ActorSlot(home, gpus) for name, home in engines.items()},
        "judges": {name: ActorSlot(home, judge_gpus(config)) for name, home in judges.items()},
        "workers": {name: ActorSlot(home) for name, home in workers.items()},
    }


def resource_shares(by_role: Mapping[str, Mapping[str, ActorSlot]]) -> dict[str, dict[str, NodeShare]]:
    """Return the slots as shares of nodes, without empty ones."""
    taken = Counter(slot.node.ray_id for actors in by_role.values() for slot in actors.values())
    shares = {
        role: {
            name: NodeShare(slot.node.ray_id, min(1.0, slot.node.cpus / taken[slot.node.ray_id]), slot.gpus)
            for name, slot in actors.items()
        }
        for role, actors in by_role.items()
    }
    return {role: {name: share for name, share in actors.items() if share.resources} for role, actors in shares.items()}


@asynccontextmanager
async def reserve_slots(
    run: str, by_role: Mapping[str, Mapping[str, ActorSlot]]
) -> AsyncGenerator[dict[str, PlacementBundle]]:
    """Reserve the slots while the context is open and yield actor → bundle.  Raises UserError if there is no room."""
    bundles: dict[str, PlacementBundle] = {}
    try:
        for role, actors in resource_shares(by_role).items():
            if actors:
                reserved = await reserve_bundles(f"{run}/{role}", list(actors.values()), _PATIENCE_S)
                bundles |= dict(zip(actors, reserved, strict=True))
        yield bundles
    except PlacementError as error:
        raise UserError(f"{error}: `ray status` shows who does; wait for them, or reduce what the run needs") from error
    finally:
        release_bundles(list(bundles.values()))
