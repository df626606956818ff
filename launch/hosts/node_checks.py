"""Checks every node at the same time, before any part of a run starts.

:func:`launch.hosts.node_requirements.inspect_node` runs on each node in an actor that ends with its answer.  A node
that cannot fill a role is not given that role.  If its label assigns the role, or the problem concerns every role, the
run does not start; the error lists the problems of all nodes.  Warnings are printed and stop nothing.
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
"""Seconds for a process to start on a busy machine and for the slowest of the doctor's checks."""

_REMEDY = "bring it to the driver's commit, or look at its Ray logs (/tmp/ray/session_latest/logs)"

FindingsByNode = Mapping[str, tuple[Finding, ...]]
"""Node's name → failures and warnings."""


class NodeReport(NamedTuple):
    findings: tuple[Finding, ...]
    clock: float
    """Unix time by the node's clock."""


NodeQuery = Callable[[ClusterNode, NodeRequirements], Awaitable[NodeReport]]


class NodeInspector:
    """Runs on the node that is inspected."""

    def inspect(self, required: NodeRequirements) -> NodeReport:
        return NodeReport(inspect_node(required), time.time())


async def inspect_by_actor(node: ClusterNode, required: NodeRequirements) -> NodeReport:
    """Inspect ``node`` in an actor on it.  Raises InfraError, TimeoutError."""
    inspector = spawn_actor(
        NodeInspector, ActorOptions(name=f"node-inspector/{node.ray_id}/{time.time_ns()}", node_id=node.ray_id)
    )
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await inspector.call(NodeInspector.inspect, required)
    finally:
        kill_actor(inspector)


async def check_nodes(
    nodes: Sequence[ClusterNode], required: NodeRequirements, inspect: NodeQuery = inspect_by_actor
) -> FindingsByNode:
    """Return the failures and warnings of each node; all are inspected at the same time."""
    async with asyncio.TaskGroup() as group:
        inspecting = {node.name: group.create_task(_inspect(node, required, inspect)) for node in nodes}
    return {name: task.result() for name, task in inspecting.items()}


async def _inspect(node: ClusterNode, required: NodeRequirements, inspect: NodeQuery) -> tuple[Finding, ...]:
    begun = time.time()
    try:
        answer = await inspect(node, required)
    except Exception as error:  # noqa: BLE001  whatever the node's code raises is what is wrong there
        return (failed(CheckName.ANSWER, _describe_error(error), _REMEDY),)
    ended = time.time()
    return (*answer.findings, *judge_clock_offset((begun + ended) / 2 - answer.clock, (ended - begun) / 2))


def _describe_error(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_ANSWER_S:g} s"
    return str(error) if isinstance(error, InfraError) else f"{type(error).__name__}: {error}"


def restrict_roles(nodes: Sequence[ClusterNode], findings: FindingsByNode) -> list[ClusterNode]:
    """Return each node with the roles that it can fill.  Raises UserError with every problem that has to be fixed
    first."""
    failures = {node.name: [each for each in findings.get(node.name, ()) if _failed(each)] for node in nodes}
    serious = {
        node: [each for each in failures[node.name] if (role := role_lost(each)) is None or role in node.labelled_roles]
        for node in nodes
    }
    lines = [f"{_format_node(node)}: {'; '.join(map(_named, found))}" for node, found in serious.items() if found]
    if lines:
        raise UserError(f"{len(lines)} of {len(nodes)} nodes cannot be used. {'. '.join(lines)}")
    return [
        replace(
            node, roles=node.roles - {role for each in failures[node.name] if (role := role_lost(each)) is not None}
        )
        for node in nodes
    ]


def require_worker_role(node: ClusterNode, findings: FindingsByNode) -> ClusterNode:
    """Return a joining node with the roles that it can fill.  Raises UserError if it can run no workers."""
    (able,) = restrict_roles([node], findings)
    if NodeRole.WORKER in able.roles:
        return able
    if NodeRole.WORKER in node.roles:
        raise UserError(". ".join(describe_findings([node], findings)))
    label = f"{ROLES_LABEL}={'.'.join(node.labelled_roles)}"
    raise UserError(
        f"{_format_node(node)}: its label {label} excludes workers, and engines are placed only when a run starts"
    )


def describe_findings(nodes: Sequence[ClusterNode], findings: FindingsByNode) -> list[str]:
    """Return one line for each role that a node is not given, and for each warning."""
    return [f"{_format_node(node)}: {_remark(each)}" for node in nodes for each in findings.get(node.name, ())]


def _remark(finding: Finding) -> str:
    names = {NodeRole.WORKER: "no workers run there", NodeRole.ENGINE: "no engine runs there"}
    role = role_lost(finding)
    return f"{names[role]}, for {finding}" if role is not None and _failed(finding) else _named(finding)


def _named(finding: Finding) -> str:
    return f"{finding.check}: {finding}"


def _failed(finding: Finding) -> bool:
    return finding.level is FindingLevel.FAILED


def _format_node(node: ClusterNode) -> str:
    return f"{node.name} ({node.address})"
