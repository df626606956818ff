"""Places each actor of a run on a node and shares out a machine's Docker engine.  Pure functions of the configuration
and the nodes."""

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
from protocol.run_directory.actor_names import EVALUATION_ENGINE, JUDGE_ENGINE


def engine_gpus(config: RunConfig) -> int:
    """Return the number of GPUs that each engine reserves; a colocated engine uses the learner's."""
    return config.engine.tp if config.engine.device == "cuda" and not config.colocated else 0


def judge_gpus(config: RunConfig) -> int:
    """Return the number of GPUs that each engine of the run's own judge reserves."""
    return config.judge.tp if config.engine.device == "cuda" else 0


def place_engines(config: RunConfig, nodes: Sequence[ClusterNode]) -> dict[str, ClusterNode]:
    """Return each engine's name and node: spread over the nodes, or over those with free GPUs.  The first node is the
    learner's.  Raises UserError if there are too few GPUs, including those of a judge and of an online evaluation."""
    homes = _place_engines(config, nodes, with_evaluation=has_evaluation_engine(config))
    return {name: homes[name] for name in _engine_names(config)}


def place_judges(config: RunConfig, nodes: Sequence[ClusterNode]) -> dict[str, ClusterNode]:
    """Return name and node of each engine of the run's own judge, if there is one.  Raises as :func:`place_engines`."""
    homes = _place_engines(config, nodes, with_evaluation=has_evaluation_engine(config))
    return {name: homes[name] for name in _judge_names(config)}


def has_evaluation_engine(config: RunConfig) -> bool:
    """Return whether GPUs are reserved for the engine of online evaluations."""
    return config.evaluation.every_steps > 0 and not config.colocated


def place_evaluation_engine(config: RunConfig, nodes: Sequence[ClusterNode]) -> ClusterNode:
    """Return the node of the engine of online evaluations.  Raises UserError if there is no GPU for it."""
    return _place_engines(config, nodes, with_evaluation=True)[EVALUATION_ENGINE]


def _engine_names(config: RunConfig) -> list[str]:
    return [f"engine-{index}" for index in range(config.engine.count)]


def _judge_names(config: RunConfig) -> list[str]:
    return [f"{JUDGE_ENGINE}-{index}" for index in range(config.judge.own_engines)]


def _place_engines(config: RunConfig, nodes: Sequence[ClusterNode], *, with_evaluation: bool) -> dict[str, ClusterNode]:
    each, ranks = engine_gpus(config), config.learner.ranks if config.learner.device == "cuda" else 0
    free, sender = {node.name: node.gpus for node in nodes}, config.engine.broadcast_device == "cuda"
    free[nodes[0].name] -= ranks + sender
    wanted = dict.fromkeys(_engine_names(config), each) | dict.fromkeys(_judge_names(config), judge_gpus(config))
    wanted |= {EVALUATION_ENGINE: each} if with_evaluation else {}
    homes: dict[str, ClusterNode] = {}
    for name, gpus in wanted.items():
        able = [node for node in nodes if NodeRole.ENGINE in node.roles and (not gpus or free[node.name] >= gpus)]
        if not able:
            break
        home = homes[name] = min(able, key=lambda node: sum(there is node for there in homes.values()))
        free[home.name] -= gpus
    if not each and not homes:
        raise UserError("no node may have an engine: no label allows one; start a node without a label")
    if min(free.values()) < 0 or len(homes) < len(wanted):
        there = ", ".join(f"{node.name} {node.gpus}" for node in nodes if node.gpus) or "none"
        head = f"{ranks} learner ranks{' and a sender' if sender else ''} on {nodes[0].name}"
        judges = config.judge.own_engines
        judge = f", {judges} of the judge with {judge_gpus(config)} each (none with judge.url)" if judges else ""
        evaluation = ", and one more for online evaluations (none with --set evaluation.every_steps=0)"
        raise UserError(
            f"too few GPUs ({there}) for {head} and {config.engine.count} engines with {each} each{judge}"
            f"{evaluation if with_evaluation else ''}: lower learner.ranks, engine.count or engine.tp, "
            "join nodes that have more, or let both share one (--set cluster.placement=colocated --mode sync)"
        )
    return homes


_COPIED_TO_OTHER_HOSTS = {WeightTransferMode.AUTO, WeightTransferMode.ADAPTERS}
"""Modes that copy weights only for engines on other machines than the learner's."""


def first_node_by_address(nodes: Sequence[ClusterNode]) -> dict[str, ClusterNode]:
    """Return each machine's address and first node."""
    first: dict[str, ClusterNode] = {}
    for node in nodes:
        first.setdefault(node.address, node)
    return first


def place_weight_copies(config: RunConfig, nodes: Sequence[ClusterNode]) -> dict[str, ClusterNode]:
    """Return the node of the weight cache of each engine that does not read the learner's folder; a machine has one
    cache.  Raises UserError for a transfer mode that does not reach another machine."""
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
        if path in {WeightTransferMode.DELTA, WeightTransferMode.BROADCAST}
        or (path in _COPIED_TO_OTHER_HOSTS and node.remote)
    }


def place_workers(config: RunConfig, nodes: Sequence[ClusterNode]) -> dict[str, ClusterNode]:
    """Return each worker's name and node.  Raises UserError if no node may have one."""
    able = [node for node in nodes if NodeRole.WORKER in node.roles]
    if not able:
        raise UserError(
            "no node may have workers: none has a Docker engine and a label that allows them; start one with both, or "
            " take sandboxes from pool servers (--set sandbox.provider=pool)"
        )
    return {name: node for node in able for name in worker_names(config, node)}


def worker_names(config: RunConfig, node: ClusterNode) -> list[str]:
    """Return the names of the workers on ``node``."""
    number = node.name.removeprefix("node-")
    return [f"worker-{number}-{index}" for index in range(config.rollout.workers_per_node)]


_LATER_NODES = 64
"""Number of nodes that may join in one start of a run; the keys of their workers are made before it."""


def expected_workers(config: RunConfig, nodes: Sequence[ClusterNode]) -> list[str]:
    """Return the names of all workers that may ever send trajectories."""
    later = [ClusterNode(f"node-{len(nodes) + more}", "", "") for more in range(_LATER_NODES)]
    return [name for node in (*nodes, *later) for name in worker_names(config, node)]


def actor_run_dir(config: RunConfig, directory: RunDirectory, node: ClusterNode) -> Path:
    """Return the folder that the actors on ``node`` write to: the run's directory, or a scratch folder on another
    machine, which is synced to it."""
    if not node.remote:
        return directory.path
    # No folder around it, which would be left there.
    return config.cluster.scratch_dir / f"{directory.run_id}-{directory.start_number}"


class WorkerShare(NamedTuple):
    """The share of one worker in its machine's Docker capacity."""

    episodes: int
    """Concurrent episodes."""
    starts: int
    """Concurrent container starts."""


def share_docker_engine(config: RunConfig, nodes: Sequence[ClusterNode]) -> WorkerShare:
    """Return the share of each worker; nodes with the same address, like simulated ones, are on one machine.  Raises
    UserError for too many."""
    here = max(Counter(node.address for node in nodes).values())
    workers = here * config.rollout.workers_per_node
    return WorkerShare(config.rollout.episodes_per_worker_of(here), max(1, config.sandbox.start_concurrency // workers))
