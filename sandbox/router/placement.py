"""Chooses the server for a request: pure rules over the last known status of the servers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sandbox.http.server_urls import rank_urls
from sandbox.images.image_names import with_tag

K = TypeVar("K")
V = TypeVar("V")

REPEATABLE_PATHS = frozenset(
    {"/heartbeat", "/interrupt", "/close", "/read_file", "/read_tree", "/allocate_group", "/release_group"}
)
"""Paths whose requests are idempotent."""
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class PoolServerNode:
    """A server according to its last status."""

    url: str
    reachable: bool = True
    free: int = 0
    """Number of slots that are not leased."""
    images: frozenset[str] = frozenset()
    slots: int = 0
    """Number of all slots; 0 while unknown."""
    new_tasks: bool = True
    """True if it accepts a task key, and so a group, that it does not have yet."""
    groups: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)
    """Number of slots that each group holds."""
    reserved: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)
    """Number of each group's slots that are reserved for later requests."""

    @property
    def key(self) -> str:
        """Name in lease ids: the same for every order of the servers, and after a restart."""
        return hashlib.sha1(self.url.encode(), usedforsecurity=False).hexdigest()[:8]


def rank_nodes(task_key: str, image: str, nodes: Iterable[PoolServerNode]) -> list[PoolServerNode]:
    """Sort the servers for a task, best first: reachable ones that have its image, then by rendezvous hashing."""
    by_url = {node.url: node for node in nodes}
    ranked = [by_url[url] for url in rank_urls(task_key, by_url)]
    name = with_tag(image) if image else ""
    return sorted(ranked, key=lambda node: (not node.reachable, bool(name) and name not in node.images))


def split_slots(slots: int, nodes: Sequence[PoolServerNode]) -> dict[PoolServerNode, int] | None:
    """Spread ``slots`` over as few nodes as possible, the emptiest first; None when there are not enough."""
    shares: dict[PoolServerNode, int] = {}
    for node in sorted((each for each in nodes if each.reachable and each.new_tasks), key=lambda node: -node.free):
        share = min(slots - sum(shares.values()), node.free)
        if share > 0:
            shares[node] = share
    return shares if sum(shares.values()) == slots else None


def group_shares(group: str, nodes: Iterable[PoolServerNode]) -> dict[PoolServerNode, int]:
    """Return the nodes that hold a group, with their numbers of slots."""
    return {node: node.groups[group] for node in nodes if node.groups.get(group)}


def remember_bounded(memory: dict[K, V], key: K, value: V) -> None:
    """Add an entry; drop the oldest if there are too many."""
    if len(memory) >= _REMEMBERED:
        memory.pop(next(iter(memory)))
    memory[key] = value


def can_never_fit(slots: int, nodes: Sequence[PoolServerNode]) -> bool:
    """Return whether these nodes would have too few slots even if they were empty."""
    return all(each.slots for each in nodes) and sum(each.slots for each in nodes) < slots


def is_repeatable(path: str, body: Mapping[str, Any]) -> bool:
    """Return whether sending the same request twice has the effect of sending it once."""
    return path in REPEATABLE_PATHS or bool(body.get("request_id"))


def router_lease_id(node: PoolServerNode, lease: str) -> str:
    """Return the router's name for a server's lease."""
    return f"{node.key}:{lease}"


def parse_router_lease_id(lease: str, nodes: Iterable[PoolServerNode]) -> tuple[PoolServerNode, str] | None:
    """Return the server of a lease and its name there; None if it is not a lease of these servers."""
    key, colon, rest = lease.partition(":")
    found = next((node for node in nodes if colon and node.key == key), None)
    return (found, rest) if found and rest else None
