"""The nodes of a run over time: each has a unique name, joins, and may be lost.

A node that Ray no longer lists is lost for good: if it returns, it counts as another node, even at the same address.
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
    """One line for each new node that cannot be used."""


class NodeMembership:
    def __init__(self, nodes: Sequence[ClusterNode], max_nodes: int) -> None:
        """Begin with the ``nodes`` that the run started with, the driver's first."""
        self.nodes = tuple(nodes)
        self._max_nodes, self._head, self._next = max_nodes, nodes[0].address, len(nodes)
        self._refused: set[str] = set()

    def update(self, alive: Sequence[RayNode]) -> MembershipChange:
        """Return the change since the last call, given the nodes that are ``alive``."""
        living = {node.ray_id for node in alive}
        gone = tuple(node for node in self.nodes if node.ray_id not in living)
        self.nodes = tuple(node for node in self.nodes if node.ray_id in living)
        known = {node.ray_id for node in self.nodes} | self._refused
        fresh = [node for node in alive if node.ray_id not in known]
        joined, refused = list[ClusterNode](), list[str]()
        for node in fresh[: max(0, self._max_nodes - len(self.nodes))]:
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
        """Drop a node that cannot be used and do not admit it again."""
        self._refused.add(node.ray_id)
        self.nodes = tuple(each for each in self.nodes if each.ray_id != node.ray_id)
