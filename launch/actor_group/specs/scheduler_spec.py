"""The spec of the run's scheduler."""

from __future__ import annotations

from actors.scheduler.settings import SchedulerSpec
from actors.workers.request_poller import REQUEST_POLL_S
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.run_records.run_directory import RunDirectory
from protocol.staleness import AdmissionLimit

_REPORT_S = 30.0
"""Seconds for a worker to report the end of a request to the scheduler."""


def rollout_request_deadline_s(config: RunConfig) -> float:
    """Return the seconds after which a rollout request counts as lost.

    A worker that keeps its own deadlines has reported by then: polling, the episode, sending its trajectory, and the
    report to the scheduler."""
    return REQUEST_POLL_S + config.rollout.episode_deadline_s + config.rollout.send_deadline_s + _REPORT_S


def scheduler_spec(
    config: RunConfig, directory: RunDirectory, head: ClusterNode, tasks: tuple[str, ...]
) -> SchedulerSpec:
    """Return the spec of the scheduler of the training ``tasks``."""
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
