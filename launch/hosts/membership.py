"""Who is in the cluster while a run goes on: names that are never given twice, who came and who went.

A node that Ray lists no more is gone for good: what comes back after that is another node, whatever its address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from launch.hosts.cluster_nodes import ClusterNode, RayNode, make_cluster_node
from protocol.errors import UserError


class MembershipChange(NamedTuple):
    joined: tuple[ClusterNode, ...] = ()
    gone: tuple[ClusterNode, ...] = ()
    refused: tuple[str, ...] = ()
    """Why nodes that came cannot be used."""


class NodeMembership:
    def __init__(self, nodes: Sequence[ClusterNode], most: int) -> None:
        """``nodes``: those that the run began with, the driver's first.  Never more than ``most`` at once."""
        self.nodes = tuple(nodes)
        self._most, self._head, self._next = most, nodes[0].address, len(nodes)
        self._refused: set[str] = set()

    def update(self, alive: Sequence[RayNode]) -> MembershipChange:
        """What changed, given who is alive."""
        living = {node.ray_id for node in alive}
        gone = tuple(node for node in self.nodes if node.ray_id not in living)
        self.nodes = tuple(node for node in self.nodes if node.ray_id in living)
        known = {node.ray_id for node in self.nodes} | self._refused
        fresh = [node for node in alive if node.ray_id not in known]
        joined, refused = list[ClusterNode](), list[str]()
        for node in fresh[: max(0, self._most - len(self.nodes))]:
            try:
                joined.append(self._admit(node))
            except UserError as error:
                self._refused.add(node.ray_id)
                refused.append(str(error))
        return MembershipChange(tuple(joined), gone, tuple(refused))

    def _admit(self, node: RayNode) -> ClusterNode:
        made = make_cluster_node(node, self._next, head=self._head)
        self._next += 1
        self.nodes = (*self.nodes, made)
        return made

    def refuse(self, node: ClusterNode) -> None:
        """It cannot be used; it is not looked at again."""
        self._refused.add(node.ray_id)
        self.nodes = tuple(each for each in self.nodes if each.ray_id != node.ray_id)
