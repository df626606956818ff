"""The services of a run: live page, metric exporters, control requests, stall detection and alerts."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from actors.scheduler.admission import RolloutFlow
from launch.actor_group.group import ActorGroup
from launch.alerts.alert_watch import AlertWatch, silenced_alerts
from launch.config import RunConfig
from launch.control.actions import ControlActions
from launch.control.pause_state import PAUSE_ALERT, describe_pause, is_paused
from launch.control.scheduler_state import SchedulerStateSender
from launch.control.server import ControlServer
from launch.exporters.process import run_exporters_process
from launch.monitor.process import run_monitor_process
from launch.monitor.progress import show_progress
from launch.monitor.run_state.store import RunStore
from launch.processes.background_tasks import background_services
from launch.processes.process_reaper import RUN_TOKEN_VARIABLE
from launch.run.training_setup import Training
from launch.run_records.run_context import RunContext
from launch.stall_diagnosis.detector import StallDetector
from protocol.cli.output import display_path


@asynccontextmanager
async def serve_monitor(run: RunContext) -> AsyncGenerator[str]:
    """Serve the live page and yield its address without the token, which only the console shows; empty without a
    page."""
    if not run.config.monitor.enabled:
        yield ""
        return
    path, log = run.directory.path, run.directory.logs / "monitor.log"
    async with run_monitor_process(path, port=run.config.monitor.port, log=log) as link:
        url, has_token, _ = link.partition("?")
        if has_token:
            run.console.print(f"the live monitor, with its token: {link}")
        if not url:
            again = f"longshore monitor {display_path(path)}"
            run.console.print(f"no live monitor ({display_path(log)} says why); the run continues without it: {again}")
        yield url


@asynccontextmanager
async def export_progress(run: RunContext) -> AsyncGenerator[None]:
    """Show progress on the console and export metrics."""

    def report_failure(text: str) -> None:
        run.raise_alert("metrics", text)

    path, log = run.directory.path, run.directory.logs / "exporters.log"
    async with (
        background_services(show_progress(RunStore(path), run.console)),
        run_exporters_process(path, run.config.metrics, log, report_failure) as address,
    ):
        if address:
            run.console.print(f"metrics: {address}")
        yield


def watch_services(
    run: RunContext, actors: ActorGroup, training: Training, started_at: float
) -> list[Coroutine[Any, Any, None]]:
    """Return the services that watch the run and execute control requests; ``started_at`` is a Unix time."""
    stall_detector = StallDetector(
        events=run.events,
        limit_s=lambda: run.config.run.stall_timeout_s,
        sampled_tokens=actors.engines.sampled_tokens,
        report=lambda: actors.write_stall_report(os.environ[RUN_TOKEN_VARIABLE]),
    )
    alert_watch = AlertWatch(
        run_dir=run.directory.path,
        events=run.events,
        reserve_bytes=run.config.run.disk_reserve_mb << 20,
        engine_loads=actors.engines.loads,
        silenced=silenced_alerts(run.config),
        listeners=[stall_detector.observe_event],
    )
    control = ControlServer(
        run_dir=run.directory.path,
        events=run.events,
        execute=_control_actions(run, actors, training).execute,
        run_started_at=started_at,
    )
    return [control.serve(), stall_detector.watch(), alert_watch.watch(), run.events.emit_loop_lag()]


def _control_actions(run: RunContext, actors: ActorGroup, training: Training) -> ControlActions:
    def apply_config(config: RunConfig) -> None:
        run.config = config
        training.loop.state.config = config

    return ControlActions(
        run_dir=run.directory.path,
        events=run.events,
        scheduler_state=training.scheduler_state,
        scheduler=actors.scheduler,
        training=training.loop,
        step_hooks=training.step_hooks,
        config=run.config,
        apply_config=apply_config,
        set_learning_rate_from=actors.learners.set_learning_rate_from,
        cancel_episodes=actors.workers.cancel_trajectories,
        drain_engine=actors.engines.drain,
        evaluate=training.online_evaluation.request_evaluation,
    )


def restore_pause(run: RunContext, scheduler_state: SchedulerStateSender) -> bool:
    """Return whether a person paused the run in an earlier start and did not resume it, and pause rollout if so."""
    if not is_paused(run.directory.path):
        return False
    scheduler_state.restore_flow(RolloutFlow.PAUSE)
    run.raise_alert(PAUSE_ALERT, describe_pause(run.directory.path))
    return True
