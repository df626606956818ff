"""Every node is asked for what it needs, all at once, before anything of a run starts.

What is asked is one function (:func:`launch.hosts.node_requirements.examine`), run on each node by an actor that ends
with its answer.  A node that lacks what one role needs is not given that role; one whose label says that it has it,
or that lacks what every role needs, keeps the run from starting, with all that is wrong on all nodes in one line.
What could only be better is told, and keeps nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from actors.runtime.remote import ActorOptions, kill_actor, spawn_actor
from launch.doctor.finding import CheckName, Finding, FindingLevel, failed
from launch.hosts.cluster_nodes import ROLES_LABEL, ClusterNode, NodeRole
from launch.hosts.node_requirements import NodeRequirements, inspect_node, judge_clock_offset, role_lost
from protocol.errors import InfraError, UserError

_ANSWER_S = 300.0
"""A process on a busy machine has to start for it, and the slowest of the doctor's checks may take its time there."""

_REMEDY = "bring it to the driver's commit, or look at its Ray logs (/tmp/ray/session_latest/logs)"

FindingsByNode = Mapping[str, tuple[Finding, ...]]
"""Node's name → what is wrong there, or could be better."""


class NodeReport(NamedTuple):
    findings: tuple[Finding, ...]
    clock: float
    """The node's."""


NodeQuery = Callable[[ClusterNode, NodeRequirements], Awaitable[NodeReport]]


class NodeInspector:
    """On the node that is asked.  A plain class; an actor elsewhere."""

    def inspect(self, asked: NodeRequirements) -> NodeReport:
        return NodeReport(inspect_node(asked), time.time())


async def inspect_by_actor(node: ClusterNode, asked: NodeRequirements) -> NodeReport:
    """Raises InfraError, TimeoutError."""
    examiner = spawn_actor(
        NodeInspector, ActorOptions(name=f"node-inspector/{node.ray_id}/{time.time_ns()}", node_id=node.ray_id)
    )
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await examiner.call(NodeInspector.inspect, asked)
    finally:
        kill_actor(examiner)


async def check_nodes(
    nodes: Sequence[ClusterNode], asked: NodeRequirements, ask: NodeQuery = inspect_by_actor
) -> FindingsByNode:
    """What is wrong on each of ``nodes``, or could be better; all are asked at once."""
    async with asyncio.TaskGroup() as group:
        asking = {node.name: group.create_task(_query_node(node, asked, ask)) for node in nodes}
    return {name: task.result() for name, task in asking.items()}


async def _query_node(node: ClusterNode, asked: NodeRequirements, ask: NodeQuery) -> tuple[Finding, ...]:
    begun = time.time()
    try:
        answer = await ask(node, asked)
    except Exception as error:  # noqa: BLE001  code that is not ours may raise anything, and that is what is wrong there
        return (failed(CheckName.ANSWER, _why(error), _REMEDY),)
    ended = time.time()
    return (*answer.findings, *judge_clock_offset((begun + ended) / 2 - answer.clock, (ended - begun) / 2))


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_ANSWER_S:g} s"
    return str(error) if isinstance(error, InfraError) else f"{type(error).__name__}: {error}"


def restrict_roles(nodes: Sequence[ClusterNode], findings: FindingsByNode) -> list[ClusterNode]:
    """Each node with the roles that it can have.  Raises UserError for all that has to be mended first."""
    failures = {node.name: [each for each in findings.get(node.name, ()) if _failed(each)] for node in nodes}
    serious = {
        node: [each for each in failures[node.name] if (role := role_lost(each)) is None or role in node.labelled_roles]
        for node in nodes
    }
    lines = [f"{_at(node)}: {'; '.join(map(_named, found))}" for node, found in serious.items() if found]
    if lines:
        raise UserError(f"{len(lines)} of {len(nodes)} nodes cannot be used. {'. '.join(lines)}")
    return [
        replace(
            node, roles=node.roles - {role for each in failures[node.name] if (role := role_lost(each)) is not None}
        )
        for node in nodes
    ]


def require_worker_role(node: ClusterNode, findings: FindingsByNode) -> ClusterNode:
    """One that joins, with the roles that it can have.  Raises UserError where agents are none of them."""
    (able,) = restrict_roles([node], findings)
    if NodeRole.WORKER in able.roles:
        return able
    if NodeRole.WORKER in node.roles:
        raise UserError(". ".join(describe_findings([node], findings)))
    label = f"{ROLES_LABEL}={'.'.join(node.labelled_roles)}"
    raise UserError(f"{_at(node)}: its label {label} keeps agents away, and engines are placed at a run's start alone")


def describe_findings(nodes: Sequence[ClusterNode], findings: FindingsByNode) -> list[str]:
    """One line for each role that a node is not given, and for each thing that could be better there."""
    return [f"{_at(node)}: {_remark(each)}" for node in nodes for each in findings.get(node.name, ())]


def _remark(finding: Finding) -> str:
    names = {NodeRole.WORKER: "no agents work there", NodeRole.ENGINE: "no engine is put there"}
    role = role_lost(finding)
    return f"{names[role]}, for {finding}" if role is not None and _failed(finding) else _named(finding)


def _named(finding: Finding) -> str:
    return f"{finding.check}: {finding}"


def _failed(finding: Finding) -> bool:
    return finding.level is FindingLevel.FAILED


def _at(node: ClusterNode) -> str:
    return f"{node.name} ({node.address})"
