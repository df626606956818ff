"""One attempt at a request: its episode runs, and its trajectory is delivered or its failure is reported.

This is the boundary at which every exception of an episode becomes a report, so none can end the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.workers.episode_failure import EpisodeFailure, classify_failure
from actors.workers.settings import WorkerSettings
from protocol.activity import ActivityLog
from protocol.errors import InfraError
from protocol.evaluation import record_of_trajectory
from protocol.run_directory.process_log import get_logger
from protocol.stream.sender import TrajectorySender
from protocol.trajectory import TRAIN_PURPOSE, RolloutRequest, Trajectory
from sandbox.tasks.task import Task

MAX_BACK_OFF_S = 8.0
_log = get_logger(__name__)

RunEpisode = Callable[[RolloutRequest, Task], Awaitable[Trajectory]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRunner:
    """Runs attempts and reports their ends to the scheduler."""

    settings: WorkerSettings
    tasks: Mapping[str, Task]
    run_episode: RunEpisode
    sender: TrajectorySender
    scheduler: Remote[RolloutScheduler]
    activity: ActivityLog

    async def run(self, request: RolloutRequest) -> None:
        """Run the episode and deliver its result, or give the request back with the reason."""
        limit_s = self.settings.episode_deadline_s
        try:
            async with asyncio.timeout(limit_s):
                trajectory = await self.run_episode(request, self.tasks[request.task])
            await self._deliver(trajectory)
            _log.info("episode delivered", status=trajectory.status.value, reward=trajectory.reward.total)
        except Exception as error:  # noqa: BLE001  the boundary: a defect costs one request, is named, and is counted
            _log.warning("request given back", task=request.task, attempt=request.attempt, exc_info=True)
            await self._report_failed(request, classify_failure(error, limit_s))

    async def _report_failed(self, request: RolloutRequest, failed: EpisodeFailure) -> None:
        # The failed service is often restarting; immediate retries would use up all attempts before it is back.
        await asyncio.sleep(min(MAX_BACK_OFF_S, 2.0**request.attempt))
        with contextlib.suppress(InfraError):  # the scheduler reissues the request after its deadline
            await self.scheduler.call(RolloutScheduler.report_failed, request, failed.failure, failed.detail)

    async def _deliver(self, trajectory: Trajectory) -> None:
        """Send a training trajectory to the buffer, and report an evaluation's to the scheduler."""
        request = trajectory.request
        if request.purpose == TRAIN_PURPOSE:
            with self.activity.track("delivering"):
                await self.sender.send(trajectory, self.settings.send_deadline_s)
            await self.scheduler.call(RolloutScheduler.report_finished, request)
            return
        attempt = record_of_trajectory(trajectory, self.tasks[request.task].family)
        await self.scheduler.call(RolloutScheduler.report_evaluated, request, attempt)
