"""The spec of a rollout worker of training or of an online evaluation."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from actors.rewards.settings import RewardSpec, make_reward_spec
from actors.workers.provider_spec import ProviderSpec
from actors.workers.settings import WorkerSpec
from launch.actor_group.actor_stopper import ACTOR_STOP_S
from launch.actor_group.specs.judge_spec import judge_context_tokens
from launch.actor_group.specs.sandbox_providers import callback_address, make_provider_spec
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import WorkerShare, actor_run_dir
from launch.run_records.run_directory import RunDirectory
from protocol.run_directory.actor_names import EVALUATION_WORKER
from protocol.stream import RunKeys
from sandbox.pool.settings import PoolSettings
from sandbox.providers.settings import ENVIRONMENT


@dataclass(frozen=True, slots=True)
class BufferAddress:
    """Endpoint and keys with which workers send trajectories."""

    endpoint: str
    keys: RunKeys | None
    """None if the buffer listens on a Unix socket."""


def worker_spec(
    config: RunConfig,
    directory: RunDirectory,
    model_path: Path,
    name: str,
    node: ClusterNode,
    *,
    buffer: BufferAddress,
    share: WorkerShare,
    judge_folder: Path | None = None,
) -> WorkerSpec:
    """Return the spec of a worker on ``node``, which may use ``share`` of the machine's Docker engine;
    ``judge_folder`` holds the run's own judge there."""
    sandbox, keys = config.sandbox, buffer.keys
    return WorkerSpec(
        name=name,
        node=node.name,
        run_id=directory.run_id,
        run_dir=actor_run_dir(config, directory, node),
        model_path=str(model_path),
        endpoint=buffer.endpoint,
        curve=keys.clients[name] if keys is not None else None,
        episodes=share.episodes,
        limits=config.rollout,
        agent=config.agent.make_spec(),
        harness=config.agent,
        episode=config.agent,
        reward=_reward_spec(config, judge_folder),
        reply_timeout_s=config.engine.request_timeout_s,
        restart_timeout_s=config.engine.start_timeout_s + _learner_phase_s(config),
        command_timeout_s=sandbox.command_timeout_s,
        grade_timeout_s=sandbox.grade_timeout_s,
        pool=PoolSettings(
            name=f"{directory.run_id}/{name}",
            run_id=directory.run_id,
            capacity=share.episodes,
            start_concurrency=share.starts,
            containers=sandbox,
            agent_programs=config.agent.agent_programs,
            drain_s=ACTOR_STOP_S / 2,
        ),
        provider=_provider_spec(config, node),
        max_versions_behind=max(1, config.staleness.max_staleness // config.publish_every),
    )


def evaluation_worker_spec(
    config: RunConfig, directory: RunDirectory, model_path: Path, node: ClusterNode, *, buffer: BufferAddress
) -> WorkerSpec:
    """Return the spec of the worker of online evaluations."""
    share = WorkerShare(config.online_evaluation_slots, 1)
    spec = worker_spec(config, directory, model_path, EVALUATION_WORKER, node, buffer=buffer, share=share)
    return replace(spec, online_evaluation=True, reward=spec.reward.without_judge())


def _reward_spec(config: RunConfig, judge_folder: Path | None) -> RewardSpec:
    spec = make_reward_spec(config.rollout, config.reward, config.judge)
    if spec.judge is None or judge_folder is None:
        return spec
    room = judge_context_tokens(config, judge_folder)
    return replace(spec, judge=replace(spec.judge, model_path=str(judge_folder), context_tokens=room))


def _learner_phase_s(config: RunConfig) -> float:
    """Return how long a request may wait while the learner uses the engines' device."""
    return config.learner.call_timeout_s if config.colocated else 0.0


def _provider_spec(config: RunConfig, node: ClusterNode) -> ProviderSpec | None:
    spec = make_provider_spec(config.sandbox, os.environ)
    if spec is None or spec.name != ENVIRONMENT:
        return spec
    return replace(spec, callback_host=config.sandbox.callback or callback_address(spec.urls, node.address))
