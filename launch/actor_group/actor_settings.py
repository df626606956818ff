"""From the configuration to who lives on which node, and to each room's own settings: pure functions, but for the files
of a judge (:mod:`launch.actor_group.reward_settings`) and where pool servers are
(:mod:`launch.actor_group.sandbox_providers`)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from actors.buffer.settings import BufferSpec
from actors.engines.settings import EngineSpec
from actors.rewards.settings import make_reward_spec
from actors.scheduler.settings import SchedulerSpec
from actors.workers.provider_settings import ProviderSettings
from actors.workers.request_poller import REQUEST_POLL_S
from actors.workers.settings import WorkerSpec
from launch.actor_group.sandbox_providers import callback_address, make_provider_settings
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import WorkerShare, actor_run_dir
from launch.run_records.run_directory import RunDirectory
from protocol.run_directory.actor_names import EVALUATION_ENGINE, EVALUATION_WORKER
from protocol.staleness import AdmissionLimit
from protocol.stream import RunKeys
from sandbox.pool.sandbox_pool import PoolSettings
from sandbox.providers.settings import ENVIRONMENT

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


def buffer_spec(
    config: RunConfig, directory: RunDirectory, head: ClusterNode, port: int, keys: RunKeys | None
) -> BufferSpec:
    return BufferSpec(
        settings=config.buffer.model_copy(update={"port": port}),
        run_dir=directory.path,
        run_id=directory.run_id,
        host=head.address,
        curve=keys.server if keys is not None else None,
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
        admission=AdmissionLimit(config.run.mode, config.rollout.groups_per_step, config.staleness.max_staleness),
        total_steps=config.run.steps,
        request_deadline_s=rollout_request_deadline_s(config),
        seed=config.run.seed,
        order=config.data.order,
        tuning=config.rollout_tuning,
    )


def engine_spec(
    config: RunConfig, directory: RunDirectory, model_path: Path, name: str, node: ClusterNode
) -> EngineSpec:
    return EngineSpec(
        settings=config.engine,
        name=name,
        run_dir=actor_run_dir(config, directory, node),
        model_path=str(model_path),
        context_length=config.agent.context_tokens,
        seed=config.run.seed,
        attempt=directory.attempt,
        node=node.name,
        offloads_memory=config.colocated,
        lora=config.lora if config.publish_adapters else None,
    )


def evaluation_engine_spec(
    config: RunConfig, directory: RunDirectory, model_path: Path, node: ClusterNode
) -> EngineSpec:
    """An engine that serves one version from its beginning to its end."""
    return replace(engine_spec(config, directory, model_path, EVALUATION_ENGINE, node), offloads_memory=False)


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
    sandbox = config.sandbox
    return WorkerSpec(
        name=name,
        node=node.name,
        run_id=directory.run_id,
        run_dir=actor_run_dir(config, directory, node),
        model_path=str(model_path),
        endpoint=endpoint,
        curve=keys.clients[name] if keys is not None else None,
        episodes=share.episodes,
        settings=config.rollout,
        agent=config.agent.make_spec(),
        harness=config.agent,
        episode=config.agent,
        reward=make_reward_spec(config.rollout, config.reward, config.judge),
        reply_timeout_s=config.engine.request_timeout_s,
        restart_timeout_s=config.engine.start_timeout_s + colocation_wait_s(config),
        command_timeout_s=sandbox.command_timeout_s,
        grade_timeout_s=sandbox.grade_timeout_s,
        pool=PoolSettings(
            pool=f"{directory.run_id}/{name}",
            run_id=directory.run_id,
            capacity=share.episodes,
            start_concurrency=share.starts,
            containers=sandbox,
            drain_s=ACTOR_STOP_S / 2,
        ),
        provider=_provider(config, node),
        max_version_lag=max(1, config.staleness.max_staleness // config.publish_every),
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
