"""Every node is asked for what it needs, all at once, before anything of a run starts.

What is asked is one function (:func:`launch.machines.findings.examine`), run on each node by an actor that ends with
its answer.  A node that lacks what one role needs is not given that role; one whose label says that it has it, or that
lacks what every role needs, keeps the run from starting, with all that is wrong on all nodes in one line.  What could
only be better is told, and keeps nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from actors.remote import ActorOptions, kill, spawn
from launch.doctor.finding import CheckName, Finding, Level, failed
from launch.machines.findings import Question, clock_finding, examine, role_of
from launch.nodes import ROLES_LABEL, Node, Role
from protocol.errors import InfraError, UserError

_ANSWER_S = 300.0
"""A process on a busy machine has to start for it, and the slowest of the doctor's checks may take its time there."""

_REMEDY = "bring it to the driver's commit, or look at its Ray logs (/tmp/ray/session_latest/logs)"

Findings = Mapping[str, tuple[Finding, ...]]
"""Node's name → what is wrong there, or could be better."""


class Answer(NamedTuple):
    findings: tuple[Finding, ...]
    clock: float
    """The node's."""


Ask = Callable[[Node, Question], Awaitable[Answer]]


class Examiner:
    """On the node that is asked.  A plain class; an actor elsewhere."""

    def examine(self, asked: Question) -> Answer:
        return Answer(examine(asked), time.time())


async def by_actor(node: Node, asked: Question) -> Answer:
    """Raises InfraError, TimeoutError."""
    examiner = spawn(Examiner, ActorOptions(name=f"examiner/{node.ray_id}/{time.time_ns()}", node_id=node.ray_id))
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await examiner.call(Examiner.examine, asked)
    finally:
        kill(examiner)


async def check_nodes(nodes: Sequence[Node], asked: Question, ask: Ask = by_actor) -> Findings:
    """What is wrong on each of ``nodes``, or could be better; all are asked at once."""
    async with asyncio.TaskGroup() as group:
        asking = {node.name: group.create_task(_asked(node, asked, ask)) for node in nodes}
    return {name: task.result() for name, task in asking.items()}


async def _asked(node: Node, asked: Question, ask: Ask) -> tuple[Finding, ...]:
    begun = time.time()
    try:
        answer = await ask(node, asked)
    except Exception as error:  # noqa: BLE001  code that is not ours may raise anything, and that is what is wrong there
        return (failed(CheckName.ANSWER, _why(error), _REMEDY),)
    ended = time.time()
    return (*answer.findings, *clock_finding((begun + ended) / 2 - answer.clock, (ended - begun) / 2))


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_ANSWER_S:g} s"
    return str(error) if isinstance(error, InfraError) else f"{type(error).__name__}: {error}"


def narrowed(nodes: Sequence[Node], findings: Findings) -> list[Node]:
    """Each node with the roles that it can have.  Raises UserError for all that has to be mended first."""
    failures = {node.name: [each for each in findings.get(node.name, ()) if _failed(each)] for node in nodes}
    serious = {
        node: [each for each in failures[node.name] if (role := role_of(each)) is None or role in node.labelled]
        for node in nodes
    }
    lines = [f"{_at(node)}: {'; '.join(map(_named, found))}" for node, found in serious.items() if found]
    if lines:
        raise UserError(f"{len(lines)} of {len(nodes)} nodes cannot be used. {'. '.join(lines)}")
    return [
        replace(node, roles=node.roles - {role for each in failures[node.name] if (role := role_of(each)) is not None})
        for node in nodes
    ]


def with_agents(node: Node, findings: Findings) -> Node:
    """One that joins, with the roles that it can have.  Raises UserError where agents are none of them."""
    (able,) = narrowed([node], findings)
    if Role.WORKER in able.roles:
        return able
    if Role.WORKER in node.roles:
        raise UserError(". ".join(remarks([node], findings)))
    label = f"{ROLES_LABEL}={'.'.join(node.labelled)}"
    raise UserError(f"{_at(node)}: its label {label} keeps agents away, and engines are placed at a run's start alone")


def remarks(nodes: Sequence[Node], findings: Findings) -> list[str]:
    """One line for each role that a node is not given, and for each thing that could be better there."""
    return [f"{_at(node)}: {_remark(each)}" for node in nodes for each in findings.get(node.name, ())]


def _remark(finding: Finding) -> str:
    names = {Role.WORKER: "no agents work there", Role.ENGINE: "no engine is put there"}
    role = role_of(finding)
    return f"{names[role]}, for {finding}" if role is not None and _failed(finding) else _named(finding)


def _named(finding: Finding) -> str:
    return f"{finding.check}: {finding}"


def _failed(finding: Finding) -> bool:
    return finding.level is Level.FAILED


def _at(node: Node) -> str:
    return f"{node.name} ({node.address})"
