"""Who is in the cluster while a run goes on: names that are never given twice, who came and who went.

A node that Ray lists no more is gone for good: what comes back after that is another node, whatever its address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from launch.nodes import Node, RayNode, named
from protocol.errors import UserError


class Change(NamedTuple):
    joined: tuple[Node, ...] = ()
    gone: tuple[Node, ...] = ()
    refused: tuple[str, ...] = ()
    """Why nodes that came cannot be used."""


class Roster:
    def __init__(self, nodes: Sequence[Node], most: int) -> None:
        """``nodes``: those that the run began with, the driver's first.  Never more than ``most`` at once."""
        self.nodes = tuple(nodes)
        self._most, self._head, self._next = most, nodes[0].address, len(nodes)
        self._refused: set[str] = set()

    def look(self, alive: Sequence[RayNode]) -> Change:
        """What changed, given who is alive."""
        living = {node.ray_id for node in alive}
        gone = tuple(node for node in self.nodes if node.ray_id not in living)
        self.nodes = tuple(node for node in self.nodes if node.ray_id in living)
        known = {node.ray_id for node in self.nodes} | self._refused
        fresh = [node for node in alive if node.ray_id not in known]
        joined, refused = list[Node](), list[str]()
        for node in fresh[: max(0, self._most - len(self.nodes))]:
            try:
                joined.append(self._take(node))
            except UserError as error:
                self._refused.add(node.ray_id)
                refused.append(str(error))
        return Change(tuple(joined), gone, tuple(refused))

    def _take(self, node: RayNode) -> Node:
        made = named(node, self._next, head=self._head)
        self._next += 1
        self.nodes = (*self.nodes, made)
        return made

    def refuse(self, node: Node) -> None:
        """It cannot be used; it is not looked at again."""
        self._refused.add(node.ray_id)
        self.nodes = tuple(each for each in self.nodes if each.ray_id != node.ray_id)
