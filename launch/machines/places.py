"""What each role holds of a cluster: a group of places for the learner, one for the engines, one for the workers.

A place is a GPU or more where that is what computes, and a processor, as far as the node has one for each that is put
there: who else uses the cluster is kept from what the run needs, and starts beside it where there is room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from actors.places import NoPlace, Place, Wanted, give_back, hold
from launch.config import RunConfig
from launch.nodes import Node
from launch.settings import engine_gpus
from protocol.errors import UserError

LEARNER = "learner"
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Seat:
    """Of one actor, or of all ranks of the learner."""

    home: Node
    gpus: int = 0


def seats(
    config: RunConfig, head: Node, engines: Mapping[str, Node], workers: Mapping[str, Node]
) -> dict[str, dict[str, Seat]]:
    """Role → actor → its seat."""
    learner, gpus = config.learner, engine_gpus(config)
    ranks = learner.ranks if learner.device == "cuda" else 0
    return {
        LEARNER: {LEARNER: Seat(head, ranks + (config.engine.sender == "cuda"))},
        "engines": {name: Seat(home, gpus) for name, home in engines.items()},
        "workers": {name: Seat(home) for name, home in workers.items()},
    }


def wanted(by_role: Mapping[str, Mapping[str, Seat]]) -> dict[str, dict[str, Wanted]]:
    """The same as shares of nodes; without those that would hold nothing."""
    taken = Counter(seat.home.ray_id for actors in by_role.values() for seat in actors.values())
    shares = {
        role: {
            name: Wanted(seat.home.ray_id, min(1.0, seat.home.cpus / taken[seat.home.ray_id]), seat.gpus)
            for name, seat in actors.items()
        }
        for role, actors in by_role.items()
    }
    return {role: {name: share for name, share in actors.items() if share.resources} for role, actors in shares.items()}


@asynccontextmanager
async def held(run: str, by_role: Mapping[str, Mapping[str, Seat]]) -> AsyncGenerator[dict[str, Place]]:
    """Actor → its place, as long as the context is.  Raises UserError where there is no room."""
    places: dict[str, Place] = {}
    try:
        for role, actors in wanted(by_role).items():
            if actors:
                held_now = await hold(f"{run}/{role}", list(actors.values()), _PATIENCE_S)
                places |= dict(zip(actors, held_now, strict=True))
        yield places
    except NoPlace as error:
        raise UserError(f"{error}: `ray status` shows who does; wait for them, or ask for less") from error
    finally:
        give_back(list(places.values()))
