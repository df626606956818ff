"""Which node each actor of a run is placed on, and what share of a machine it gets.  Pure functions of the
configuration and the nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from actors.engines.settings import WeightTransferMode
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode, NodeRole
from launch.run_records.run_directory import RunDirectory
from protocol.errors import UserError
from protocol.run_directory.actor_names import EVALUATION_ENGINE


def engine_gpus(config: RunConfig) -> int:
    """What each engine has for itself; one that takes turns with the learner uses the learner's."""
    return config.engine.tp if config.engine.device == "cuda" and not config.colocated else 0


def place_engines(config: RunConfig, nodes: Sequence[ClusterNode]) -> dict[str, ClusterNode]:
    """Each engine's name and node: they are spread, over nodes with GPUs to spare where they need them.  The first node
    is the learner's.  Raises UserError where the GPUs are too few, one for evaluations beside training included."""
    homes = _place_engines(config, nodes, examines=has_evaluation_engine(config))
    return {name: home for name, home in homes.items() if name != EVALUATION_ENGINE}


def has_evaluation_engine(config: RunConfig) -> bool:
    """Whether there is to be a place for the engine of evaluations beside training."""
    return config.evaluation.every_steps > 0 and not config.colocated


def place_evaluation_engine(config: RunConfig, nodes: Sequence[ClusterNode]) -> ClusterNode:
    """Where the engine of an evaluation beside training is.  Raises UserError where there is no GPU for one."""
    return _place_engines(config, nodes, examines=True)[EVALUATION_ENGINE]


def _place_engines(config: RunConfig, nodes: Sequence[ClusterNode], *, examines: bool) -> dict[str, ClusterNode]:
    each, ranks = engine_gpus(config), config.learner.ranks if config.learner.device == "cuda" else 0
    free, sender = {node.name: node.gpus for node in nodes}, config.engine.broadcast_device == "cuda"
    free[nodes[0].name] -= ranks + sender
    names = [f"engine-{index}" for index in range(config.engine.count)] + [EVALUATION_ENGINE] * examines
    homes: dict[str, ClusterNode] = {}
    for name in names:
        able = [node for node in nodes if NodeRole.ENGINE in node.roles and (not each or free[node.name] >= each)]
        if not able:
            break
        home = homes[name] = min(able, key=lambda node: sum(there is node for there in homes.values()))
        free[home.name] -= each
    if not each and not homes:
        raise UserError("no node may have an engine: the labels of all say otherwise; start one without a label")
    if min(free.values()) < 0 or len(homes) < len(names):
        there = ", ".join(f"{node.name} {node.gpus}" for node in nodes if node.gpus) or "none"
        head = f"{ranks} learner ranks{' and a sender' if sender else ''} on {nodes[0].name}"
        exam = ", and one more for evaluations beside training (none with --set evaluation.every_steps=0)"
        raise UserError(
            f"too few GPUs ({there}) for {head} and {config.engine.count} engines with {each} each"
            f"{exam if examines else ''}: lower learner.ranks, engine.count or engine.tp, join nodes that have more, "
            "or let both take turns on one (--set cluster.placement=colocated --mode sync)"
        )
    return homes


_BY_PLACE = {WeightTransferMode.AUTO, WeightTransferMode.ADAPTERS}
"""Paths that are a copy where the engine is on another machine than the learner."""


def first_node_by_address(nodes: Sequence[ClusterNode]) -> dict[str, ClusterNode]:
    """Each machine's address and first node."""
    first: dict[str, ClusterNode] = {}
    for node in nodes:
        first.setdefault(node.address, node)
    return first


def place_weight_copies(config: RunConfig, nodes: Sequence[ClusterNode]) -> dict[str, ClusterNode]:
    """Of each engine that does not read the learner's own folder: the node whose copies it reads, one for a machine.
    Raises UserError for a way of weights that does not lead to another machine."""
    first, path = first_node_by_address(nodes), config.engine.weight_transfer
    homes = place_engines(config, nodes)
    there = sorted(name for name, node in homes.items() if node.remote)
    if there and path in {WeightTransferMode.FULL, WeightTransferMode.DIRECT}:
        raise UserError(
            f"engine.weight_transfer = '{path}' reads the learner's folder, which {', '.join(there)} cannot: "
            "set engine.weight_transfer = 'auto', 'delta' or 'broadcast'"
        )
    return {
        name: first[node.address]
        for name, node in homes.items()
        if path in {WeightTransferMode.DELTA, WeightTransferMode.BROADCAST} or (path in _BY_PLACE and node.remote)
    }


def place_workers(config: RunConfig, nodes: Sequence[ClusterNode]) -> dict[str, ClusterNode]:
    """Each worker's name and node.  Raises UserError where no node may have one."""
    able = [node for node in nodes if NodeRole.WORKER in node.roles]
    if not able:
        raise UserError(
            "no node may have agents: none has a Docker engine, or the labels of all say otherwise; start one with "
            "both, or take sandboxes from pool servers (--set sandbox.provider=pool)"
        )
    return {name: node for node in able for name in worker_names(config, node)}


def worker_names(config: RunConfig, node: ClusterNode) -> list[str]:
    """Of the workers that ``node`` has."""
    number = node.name.removeprefix("node-")
    return [f"worker-{number}-{index}" for index in range(config.rollout.workers_per_node)]


_LATER_NODES = 64
"""That may join in one attempt: the keys of their workers are made before its start."""


def expected_workers(config: RunConfig, nodes: Sequence[ClusterNode]) -> list[str]:
    """Names of all workers that may ever send trajectories."""
    later = [ClusterNode(f"node-{len(nodes) + more}", "", "") for more in range(_LATER_NODES)]
    return [name for node in (*nodes, *later) for name in worker_names(config, node)]


def actor_run_dir(config: RunConfig, directory: RunDirectory, node: ClusterNode) -> Path:
    """Where the actors on ``node`` write: the run's directory, or what of it is on another machine
    (:mod:`launch.hosts`)."""
    if not node.remote:
        return directory.path
    return config.cluster.scratch_dir / f"{directory.run_id}-{directory.attempt}"  # no folder around it is left there


class WorkerShare(NamedTuple):
    """One worker's, of what its machine's Docker daemon can do at once."""

    episodes: int
    starts: int


def share_docker_engine(config: RunConfig, nodes: Sequence[ClusterNode]) -> WorkerShare:
    """Nodes with the same address are on one machine, as simulated ones are.  Raises UserError for too many."""
    here = max(Counter(node.address for node in nodes).values())
    workers = here * config.rollout.workers_per_node
    return WorkerShare(config.rollout.episodes_per_worker_of(here), max(1, config.sandbox.start_concurrency // workers))
