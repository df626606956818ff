"""From the configuration to who lives on which node, and to each room's own settings: pure functions, but for the
files of a judge (:mod:`launch.actor_group.reward_settings`) and where pool servers are (:mod:`launch.actor_group.sandbox_providers`)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from actors.buffer.trajectory_buffer import BufferSettings
from actors.engines.settings import EngineSettings
from actors.engines.weights.adapter_files import AdapterSettings
from actors.rollout.episode import EpisodeSettings
from actors.rollout.harness import HarnessSettings
from actors.scheduler.admission import RolloutTuning
from actors.scheduler.settings import SchedulerSpec
from actors.weight_transport.host_cache import HostWeightCacheSettings
from actors.workers.provider_settings import ENVIRONMENT, ProviderSettings
from actors.workers.rollout_worker import REQUEST_POLL_S, WorkerSpec
from launch.actor_group.reward_settings import make_reward_settings
from launch.actor_group.sandbox_providers import callback_address, make_provider_settings
from launch.checkpoints.retention import Retention
from launch.config import RunConfig
from launch.config.rollout import WeightTransferMode
from launch.evaluation.online.schedule import EVALUATION_ENGINE, EVALUATION_WORKER
from launch.hosts.cluster_nodes import ClusterNode, NodeRole
from launch.run_records.run_directory import RunDirectory
from protocol.errors import UserError
from protocol.staleness import AdmissionLimit
from protocol.stream import RunKeys
from sandbox.pool.sandbox_pool import PoolSettings

ACTOR_STOP_S = 15.0
"""An actor that is told to stop has so long."""
_WORD_S = 30.0


def rollout_request_deadline_s(config: RunConfig) -> float:
    """A worker that keeps its own deadlines has given a ticket back by then: the wait for it, the episode, the sending
    of its trajectory, and the word to the conductor."""
    return REQUEST_POLL_S + config.rollout.episode_deadline_s + config.rollout.send_deadline_s + _WORD_S


def colocation_wait_s(config: RunConfig) -> float:
    """How long a request may have to wait for the learner's turn on a device that it shares with the engines."""
    return config.learner.call_timeout_s if config.colocated else 0.0


def default_in_flight(config: RunConfig) -> int:
    """What the engines are to hold at once."""
    return config.in_flight


def admission_tuning(config: RunConfig) -> RolloutTuning:
    """What admission goes by, and may be changed while the run goes on."""
    rollout = config.rollout
    return RolloutTuning(default_in_flight(config), rollout.lead, rollout.slack, config.publish_every)


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
    free, sender = {node.name: node.gpus for node in nodes}, config.engine.sender == "cuda"
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
            "or let both take turns on one (--set cluster.placement=shared --mode sync)"
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
    first, path = first_node_by_address(nodes), config.engine.weights
    homes = place_engines(config, nodes)
    there = sorted(name for name, node in homes.items() if node.remote)
    if there and path in {WeightTransferMode.FULL, WeightTransferMode.DIRECT}:
        raise UserError(
            f"engine.weights = '{path}' reads the learner's folder, and {', '.join(there)} is on another machine: set "
            "engine.weights = 'auto', 'delta' or 'broadcast'"
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


def checkpoint_retention(config: RunConfig) -> Retention:
    checkpoint = config.checkpoint
    return Retention(
        checkpoint.keep, checkpoint.keep_first, every_steps=checkpoint.keep_every_steps, keep_best=checkpoint.keep_best
    )


def buffer_settings(
    config: RunConfig, directory: RunDirectory, head: ClusterNode, port: int, keys: RunKeys | None
) -> BufferSettings:
    return BufferSettings(
        run_dir=directory.path,
        run_id=directory.run_id,
        host=head.address,
        port=port,
        curve=keys.server if keys is not None else None,
        budget_bytes=config.buffer.budget_bytes,
        max_trajectory_bytes=config.buffer.max_trajectory_bytes,
        disk_floor_bytes=config.run.disk_reserve_mb << 20,
        dynamic_sampling=config.dynamic_sampling,
        node=head.name,
    )


def scheduler_settings(
    config: RunConfig, directory: RunDirectory, head: ClusterNode, tasks: tuple[str, ...]
) -> SchedulerSpec:
    return SchedulerSpec(
        run_id=directory.run_id,
        run_dir=directory.path,
        node=head.name,
        tasks=tasks,
        settings=config.rollout,
        admission=AdmissionLimit(config.run.mode, config.rollout.groups_per_step, config.staleness.eta),
        total_steps=config.run.steps,
        request_deadline_s=rollout_request_deadline_s(config),
        seed=config.run.seed,
        order=config.data.order,
        tuning=admission_tuning(config),
    )


def engine_settings(
    config: RunConfig, directory: RunDirectory, model_path: Path, name: str, node: ClusterNode
) -> EngineSettings:
    return EngineSettings(
        name=name,
        run_dir=actor_run_dir(config, directory, node),
        model_path=str(model_path),
        context_length=config.agent.context_tokens,
        max_total_tokens=config.engine.max_total_tokens,
        max_running=config.engine.max_running,
        max_queued=config.engine.max_queued,
        device=config.engine.device,
        tp=config.engine.tp,
        memory_share=config.engine.memory_share,
        dtype=config.engine.dtype,
        deterministic=config.engine.deterministic,
        weight_loader=config.engine.handover,
        prefix_reuse=config.engine.kv,
        pause_mode=config.engine.pause,
        seed=config.run.seed,
        attempt=directory.attempt,
        node=node.name,
        start_timeout_s=config.engine.start_timeout_s,
        stall_timeout_s=config.engine.stall_timeout_s,
        offloads_memory=config.colocated,
        adapters=adapter_settings(config),
    )


def evaluation_engine_settings(
    config: RunConfig, directory: RunDirectory, model_path: Path, node: ClusterNode
) -> EngineSettings:
    """An engine that serves one version from its beginning to its end."""
    return replace(engine_settings(config, directory, model_path, EVALUATION_ENGINE, node), offloads_memory=False)


def adapter_settings(config: RunConfig) -> AdapterSettings | None:
    """What an engine is told of the adapters that it gets alone, if it does."""
    lora = config.lora
    if not config.publish_adapters:
        return None
    return AdapterSettings(
        rank=lora.rank, alpha=lora.alpha, targets=lora.projections, max_adapters=config.engine.max_adapters
    )


def weight_copies_settings(config: RunConfig, directory: RunDirectory, node: ClusterNode) -> HostWeightCacheSettings:
    folder = actor_run_dir(config, directory, node)
    return HostWeightCacheSettings(
        name=f"copies-{node.name.removeprefix('node-')}",
        run_dir=folder,
        node=node.name,
        folder=folder / "copies" / node.name,
        broadcast=config.engine.weights is WeightTransferMode.BROADCAST,
    )


def _provider(config: RunConfig, node: ClusterNode) -> ProviderSettings | None:
    settings = make_provider_settings(config.sandbox, os.environ)
    if settings is None or settings.name != ENVIRONMENT:
        return settings
    return replace(settings, callback_host=config.sandbox.callback or callback_address(settings.urls, node.address))


def worker_settings(
    config: RunConfig,
    directory: RunDirectory,
    model_path: Path,
    name: str,
    node: ClusterNode,
    *,
    endpoint: str,
    keys: RunKeys | None,
    share: WorkerShare,
) -> WorkerSpec:
    agent, rollout, sandbox = config.agent, config.rollout, config.sandbox
    return WorkerSpec(
        name=name,
        node=node.name,
        run_id=directory.run_id,
        run_dir=actor_run_dir(config, directory, node),
        model_path=str(model_path),
        agent=agent.settings,
        endpoint=endpoint,
        curve=keys.clients[name] if keys is not None else None,
        episodes=share.episodes,
        episode=EpisodeSettings(
            max_turns=agent.max_turns,
            max_malformed=agent.max_malformed,
            max_new_tokens=agent.max_new_tokens,
            context_tokens=agent.context_tokens,
            temperature=agent.temperature,
            generate_deadline_s=config.engine.request_timeout_s,
            engine_restart_s=config.engine.start_timeout_s + colocation_wait_s(config),
            nominal_tokens_per_s=agent.nominal_tokens_per_s,
            time_limit_s=agent.time_limit_s,
            observation_tokens=agent.observation_tokens,
            max_calls=agent.max_calls,
            history=agent.history,
            total_tokens=agent.total_tokens,
            head_share=agent.history_head,
        ),
        max_version_lag=max(1, config.staleness.eta // config.publish_every),
        episode_deadline_s=rollout.episode_deadline_s,
        acquire_timeout_s=rollout.acquire_timeout_s,
        cleanup_timeout_s=rollout.cleanup_timeout_s,
        command_timeout_s=sandbox.command_timeout_s,
        grade_timeout_s=sandbox.grade_timeout_s,
        observation_chars=agent.observation_chars,
        send_deadline_s=rollout.send_deadline_s,
        pool=PoolSettings(
            pool=f"{directory.run_id}/{name}",
            run_id=directory.run_id,
            capacity=share.episodes,
            start_concurrency=share.starts,
            unattended_s=sandbox.deadline_s,
            session_max_s=sandbox.max_s,
            start_timeout_s=sandbox.start_timeout_s,
            image=sandbox.image,
            drain_s=ACTOR_STOP_S / 2,
            egress_proxy=sandbox.egress_proxy,
        ),
        provider=_provider(config, node),
        harness=HarnessSettings(agent.harness, agent.harness_port) if agent.harness else None,
        reward=make_reward_settings(config),
    )


def evaluation_worker_settings(
    config: RunConfig,
    directory: RunDirectory,
    model_path: Path,
    node: ClusterNode,
    *,
    endpoint: str,
    keys: RunKeys | None,
) -> WorkerSpec:
    """The worker of evaluations beside training."""
    share = WorkerShare(config.online_evaluation_slots, 1)
    told = worker_settings(
        config, directory, model_path, EVALUATION_WORKER, node, endpoint=endpoint, keys=keys, share=share
    )
    return replace(told, online_evaluation=True)
