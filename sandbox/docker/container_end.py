"""Derives why a container ended from the Docker daemon's events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from sandbox.docker.retry import Json

_OOM_S = 3.0
"""Maximum seconds between an out-of-memory event and the death that it caused."""


@dataclass(frozen=True, slots=True)
class ContainerEndCause:
    """Events that the daemon saw about a container whose PID 1 ended without a message."""

    out_of_memory: bool
    """PID 1 died because memory ran out; an earlier kill of another process does not count."""
    killed_by_api: bool
    """Somebody outside the container asked the daemon to kill or remove it."""
    death_seen: bool
    """The daemon remembers the death.  One that was restarted does not, nor one that has had many events since."""
    daemon_may_have_restarted: bool = False
    """Nothing proves that the daemon has run since the container was created."""


def container_end_cause(events: Iterable[Json]) -> ContainerEndCause:
    """Derive the cause from the daemon's events about one container."""
    known = tuple(events)
    times = event_times(known)
    out_of_memory = any(abs(oom - died) <= _OOM_S for oom in times["oom"] for died in times["die"])
    return ContainerEndCause(out_of_memory, bool(times["kill"]), bool(times["die"]))


def may_have_restarted(events: Iterable[Json], since: float) -> bool:
    """Return False only if a daemon that remembers ``events``, and no others, has run since ``since`` (Unix seconds).

    An event that is older proves it; where there is none, the daemon has started later, or has forgotten it: dockerd
    keeps its last 256 events."""
    return all(since < each for found in event_times(events).values() for each in found)


def event_times(events: Iterable[Json]) -> defaultdict[str, list[float]]:
    """Map each action to its times, in Unix seconds."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for each in events:
        found[str(each.get("Action"))].append(float(each.get("timeNano", 0)) / 1e9 or float(each.get("time", 0)))
    return found
