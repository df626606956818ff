"""One rollout worker: many episodes in one event loop, on one node.

It asks the conductor for as many tickets as it has free places, runs each as an :class:`Episode` in a sandbox of its
own (:mod:`actors.workers.sandbox_source`), sends the trajectory to the buffer and reports the ticket finished once the buffer has
acknowledged it.  An episode that fails for infrastructure gives its ticket back with the reason; none can end the
worker.  The worker ends when it is told to stop, its ``run`` is cancelled or its actor dies; its containers end with
their deadline then, at the latest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
import zlib
from collections.abc import AsyncGenerator, Collection, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from actors.agents.registry import make_agent
from actors.agents.settings import AgentSettings
from actors.engines.engine import Engine
from actors.engines.messages import EngineUnavailable, GenerateReply, GenerateRequest, OnPartialReply
from actors.engines.remote_engine import RemoteEngine, polling_engines
from actors.engines.routing.router import Router
from actors.environment.messages import SandboxTimeouts
from actors.rewards.composite import RewardFunction, open_reward
from actors.rewards.settings import RewardSettings
from actors.rollout.episode import AgentEpisode, EpisodeSettings
from actors.rollout.harness import HarnessSettings
from actors.rollout.provider_terminal import ProviderTerminal
from actors.rollout.recorder import EpisodeRecorder
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.stages import StageDeadlines, StageOverrun
from actors.rollout.timed_terminal import TimedTerminal
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.evaluation import EvaluationAttempt
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.tokens.chat_format import load_chat_format
from actors.workers.environment_runner import EnvironmentRunner
from actors.workers.harness_runner import HarnessRunner
from actors.workers.provider_settings import ProviderSettings
from actors.workers.sandbox_source import open_sandbox_source, sandbox_group_of
from protocol.activity import ActivityLog
from protocol.errors import InfraError
from protocol.events import EventLog
from protocol.journal import AppendOutcome
from protocol.run_directory.process_log import bind_log_ids, get_logger
from protocol.stream import CurveClient, StreamError, TrajectorySender
from protocol.trajectory import TRAIN_PURPOSE, InfraFailure, RolloutRequest, Trajectory, is_training_trajectory
from sandbox.errors import SandboxLost, SandboxStartError, SandboxVanished, TaskFault
from sandbox.pool.sandbox_pool import PoolSettings
from sandbox.providers.interface import LocalSandbox, Sandbox, SandboxGroup
from sandbox.providers.settings import ENVIRONMENT
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task

REQUEST_POLL_S = 10.0
"""Longest wait for a ticket; its deadline counts from before it."""
_STATS_S = 1.0
_BACK_OFF_S = 8.0
_DRAIN_S = 5.0
"""Longest wait, at the end, for the acknowledgement of what was sent: of an interrupted run too, it need not be sampled
again."""


_PLAIN_REWARD = RewardSettings()
_log = get_logger(__name__)


@contextlib.contextmanager
def _logged(request: RolloutRequest) -> Generator[None]:
    """What ends the episode of ``ticket`` is logged with where it came from: events have but its line."""
    try:
        yield
    except Exception:
        _log.warning("the ticket is handed back", task=request.task, attempt=request.attempt, exc_info=True)
        raise


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    name: str
    node: str
    run_id: str
    run_dir: Path
    model_path: str
    """Folder with the tokenizer."""
    agent: AgentSettings
    endpoint: str
    """Where trajectories are received: one address, or one for each shard of the groups."""
    curve: CurveClient | None
    """Keys for each of them; None on loopback."""
    episodes: int
    """Episodes at once."""
    episode: EpisodeSettings
    episode_deadline_s: float
    """Wall-clock seconds; passing it is an infrastructure failure."""
    acquire_timeout_s: float
    """Longest wait for a sandbox, its start included."""
    cleanup_timeout_s: float
    """Longest wait for a sandbox to be gone; one that takes longer goes on ending by itself."""
    command_timeout_s: float
    grade_timeout_s: float
    observation_chars: int
    """Most characters of a command's output that the agent reads."""
    send_deadline_s: float
    """Longest wait for the buffer to acknowledge a trajectory."""
    pool: PoolSettings
    """Of the worker's own sandboxes."""
    provider: ProviderSettings | None = None
    """Instead of a pool of its own."""
    harness: HarnessSettings | None = None
    """Instead of the agent of our own."""
    reward: RewardSettings = _PLAIN_REWARD
    """Of which :attr:`EpisodeSettings.reward` is made."""
    max_version_lag: int = 0
    """Versions that an engine's weights may be behind another's; it is asked last of all then, 0: however many."""
    online_evaluation: bool = False
    """Its tickets are those of evaluations beside training (:mod:`actors.scheduler.online_evaluation`), and no others."""


class RolloutWorker:
    def __init__(
        self,
        settings: WorkerSpec,
        scheduler: Remote[RolloutScheduler],
        engines: tuple[Remote[Engine], ...],
    ) -> None:
        self._settings, self._scheduler = settings, scheduler
        self._agent = make_agent(settings.agent)
        first = zlib.crc32(settings.name.encode()) % len(engines)
        self._engines = [RemoteEngine(engine) for engine in engines]
        self._router = Router(self._engines, first=first, max_version_lag=settings.max_version_lag)
        self._events = EventLog(settings.run_dir, settings.name, settings.node)
        self._activity = ActivityLog(settings.run_dir, settings.name, "worker")
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._polling: asyncio.Timeout | None = None
        """Around the wait for tickets."""

    async def run(self, tasks: Mapping[str, Task]) -> None:
        """Work on ``tasks`` (by id) until :meth:`stop`, or until cancelled; :meth:`stop` waits for its clean-up.

        A caller whose connection broke off asks again, while the work that it began goes on: it waits for that.  Raises
        InfraError where that then ends before :meth:`stop`.
        """
        if not self._idle.is_set():
            await self._idle.wait()
            if not self._stopping.is_set():
                raise InfraError(f"what {self._settings.name} was at has ended")
            return
        self._idle.clear()
        self._incarnation = f"{os.getpid()}.{secrets.token_hex(8)}"
        try:
            await self._work(tasks)
        finally:
            self._idle.set()

    async def _work(self, tasks: Mapping[str, Task]) -> None:
        settings, self._tasks = self._settings, tasks
        thinking = settings.agent.thinking.template_argument
        self._chat = await asyncio.to_thread(
            load_chat_format, settings.model_path, self._agent.offered_tools, thinking=thinking
        )
        name = f"{settings.name}#{self._incarnation}"
        async with (
            open_sandbox_source(
                settings.pool, settings.provider, episodes=settings.episodes, acquire_s=settings.acquire_timeout_s
            ) as self._sandboxes,
            self._open_environments() as self._environments,
            TrajectorySender(
                settings.endpoint, settings.run_id, name, curve=settings.curve, acknowledged=self._acknowledged
            ) as self._sender,
            polling_engines(self._engines, self._router.update_load),
            self._open_harnesses() as self._harnesses,
            open_reward(settings.reward) as self._rewards,
        ):
            try:
                async with asyncio.TaskGroup() as episodes:
                    await self._scheduler.call(RolloutScheduler.register_worker, settings.name, self._incarnation)
                    self._events.emit("worker.started", worker=settings.name, incarnation=self._incarnation)
                    episodes.create_task(self._emit_sandbox_stats(), name="tell")
                    lane = episodes.create_task(self._activity.write_periodically(), name="lane")
                    await self._poll_requests(episodes)
                    lane.cancel()
            finally:
                if left := await self._sender.drain(_DRAIN_S):
                    self._events.emit("sender.closed", worker=settings.name, unacknowledged=[*left])

    def _open_harnesses(self) -> contextlib.AbstractAsyncContextManager[HarnessRunner | None]:
        if self._settings.harness is None:
            return contextlib.nullcontext()
        return HarnessRunner(self._settings.harness, self._chat.tokenizer, self._generate)

    async def _generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        with self._activity.track("generating"):
            return await self._router.generate(request, watch)

    def _open_environments(self) -> contextlib.AbstractAsyncContextManager[EnvironmentRunner | None]:
        settings = self._settings
        if settings.provider is None or settings.provider.name != ENVIRONMENT:
            return contextlib.nullcontext()
        times = SandboxTimeouts(
            settings.acquire_timeout_s,
            settings.command_timeout_s,
            settings.grade_timeout_s,
            settings.cleanup_timeout_s,
            settings.observation_chars,
            settings.episode_deadline_s,
        )
        return EnvironmentRunner(
            settings.provider,
            settings.agent,
            times,
            self._chat.tokenizer,
            self._generate,
            episodes=settings.episodes,
        )

    async def stop(self) -> None:
        """No new tickets; running episodes are given up.  Returns when the sandboxes are gone."""
        self._stopping.set()
        if self._polling is not None:
            self._polling.reschedule(0.0)
        self.cancel_episodes()
        await self._idle.wait()

    def cancel_episodes(self) -> None:
        for task in self._running.values():
            task.cancel()

    async def cancel_training(self) -> None:
        """Drop running training episodes: nothing waits for them any more."""
        for name, task in self._running.items():
            if is_training_trajectory(name):
                task.cancel()

    async def cancel_attempts(self, trajectories: Collection[str]) -> None:
        """Drop the running episodes of these trajectories: a person has given them up."""
        for name, task in self._running.items():
            if name.rpartition("-a")[0] in trajectories:
                task.cancel()

    async def _emit_sandbox_stats(self) -> None:
        """Say every second how full the pool is, until :meth:`stop`."""
        counted = self._environments or self._sandboxes
        while not self._stopping.is_set():
            pool = counted.statistics()
            self._events.emit(
                "sandbox.stats",
                worker=self._settings.name,
                live=pool.live,
                starting=pool.starting,
                waiting=pool.waiting,
                started=pool.started,
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STATS_S):
                    await self._stopping.wait()

    async def _poll_requests(self, episodes: asyncio.TaskGroup) -> None:
        place_free = self._slot_free = asyncio.Event()
        while not self._stopping.is_set():
            free = self._settings.episodes - len(self._running)
            if free <= 0:
                place_free.clear()
                await place_free.wait()
                continue
            try:
                tickets = await self._acquire_requests(free)
            except RemoteError:
                await asyncio.sleep(1.0)  # the conductor is being restarted
                continue
            for ticket in tickets:
                key = ticket.attempt_id
                if key in self._running:  # a restarted conductor does not know that it is here already
                    continue
                self._running[key] = episodes.create_task(self._run_request(key, ticket), name=key)

    async def _acquire_requests(self, free: int) -> list[RolloutRequest]:
        """Tickets for ``free`` places; none when none came in time, or once the worker is to stop."""
        name, me, holds = self._settings.name, self._incarnation, frozenset(self._running)
        take = (
            RolloutScheduler.acquire_evaluation_requests
            if self._settings.online_evaluation
            else RolloutScheduler.acquire_requests
        )
        try:
            async with asyncio.timeout(None) as asking:
                self._polling = asking
                tickets = await self._scheduler.call(take, name, me, free, REQUEST_POLL_S, holds)
        except TimeoutError:
            return []
        finally:
            self._polling = None
        return [] if self._stopping.is_set() else tickets

    async def _run_request(self, key: str, request: RolloutRequest) -> None:
        try:
            with bind_log_ids(group=request.group, rollout=key):
                await self._run_attempt(request)
        except asyncio.CancelledError:
            self._events.emit("episode.cancelled", trajectory=key)
            raise
        finally:
            del self._running[key]
            self._slot_free.set()

    async def _run_attempt(self, request: RolloutRequest) -> None:
        """Run the episode and hand its result on, or hand the ticket back."""
        failure, detail = InfraFailure.UNEXPECTED, ""
        try:
            with _logged(request):
                async with asyncio.timeout(self._settings.episode_deadline_s):
                    trajectory = await self._run_episode(request)
                await self._deliver(trajectory)
            _log.info("episode delivered", status=trajectory.status.value, reward=trajectory.reward.total)
        except TaskFault as error:
            failure, detail = InfraFailure.TASK_FAULT, str(error)
        except SandboxStartError as error:
            failure, detail = InfraFailure.SANDBOX_START, str(error)
        except SandboxVanished as error:
            failure, detail = InfraFailure.SANDBOX_VANISHED, str(error)
        except SandboxLost as error:
            failure, detail = InfraFailure.SANDBOX_LOST, str(error)
        except StageOverrun as error:
            failure, detail = InfraFailure.DEADLINE, str(error)
        except EngineUnavailable as error:
            failure, detail = InfraFailure.ENGINE, str(error)
        except TimeoutError:
            failure, detail = InfraFailure.DEADLINE, f"longer than {self._settings.episode_deadline_s:g} s"
        except (InfraError, StreamError, OSError) as error:
            detail = f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001  # the boundary: a defect costs one ticket, is named, and is counted
            detail = f"{type(error).__name__}: {error}"
        else:
            return
        # What failed is often being restarted: a ticket given back at once would have spent its attempts by then.
        await asyncio.sleep(min(_BACK_OFF_S, 2.0**request.attempt))
        with contextlib.suppress(InfraError):  # the conductor finds a ticket that is out too long
            await self._scheduler.call(RolloutScheduler.report_failed, request, failure, detail)

    async def _deliver(self, trajectory: Trajectory) -> None:
        ticket = trajectory.request
        if ticket.purpose == TRAIN_PURPOSE:
            with self._activity.track("delivering"):
                await self._sender.send(trajectory, self._settings.send_deadline_s)
            await self._scheduler.call(RolloutScheduler.report_finished, ticket)
            return
        attempt = EvaluationAttempt(
            ticket.task,
            self._tasks[ticket.task].family,
            ticket.greedy,
            trajectory.passed,
            trajectory.reward.total,
            trajectory.status,
            trajectory.sampled_tokens,
            trajectory.sampled_versions,
            ticket.group,
        )
        await self._scheduler.call(RolloutScheduler.report_evaluated, ticket, attempt)

    def _acknowledged(self, request: RolloutRequest, outcome: AppendOutcome) -> None:
        kind = "trajectory.rejected" if outcome is AppendOutcome.UNKNOWN else "trajectory.acknowledged"
        self._events.emit(kind, trajectory=request.trajectory_id, attempt=request.attempt, outcome=outcome.value)

    @contextlib.asynccontextmanager
    async def _sandbox(self, task: Task, together: SandboxGroup | None = None) -> AsyncGenerator[Sandbox]:
        """One for an episode.  Raises :class:`SandboxStartError` when there is none in time.  What has been
        graded is not lost for a sandbox that is slow to end."""
        settings = self._settings
        try:
            async with asyncio.timeout(settings.acquire_timeout_s):
                with self._activity.track("starting"):
                    sandbox = await self._sandboxes.open(task, settings.episode_deadline_s, together)
        except TimeoutError as error:
            raise SandboxStartError(f"no sandbox within {settings.acquire_timeout_s:g} s") from error
        try:
            yield sandbox
        finally:
            try:
                async with asyncio.timeout(settings.cleanup_timeout_s):
                    await sandbox.close()
            except TimeoutError:
                container = sandbox.container if isinstance(sandbox, LocalSandbox) else ""
                self._events.emit("sandbox.slow_cleanup", container=container, after_s=settings.cleanup_timeout_s)

    def _terminal(self, request: RolloutRequest, task: Task, session: SandboxSession) -> SandboxTerminal:
        """The session as the episode of ``ticket`` sees it."""
        settings = self._settings
        return SandboxTerminal(
            session,
            task,
            settings.command_timeout_s,
            settings.grade_timeout_s,
            settings.observation_chars,
            vanished_before=request.vanished > 0,
            tools=self._agent.tools,
        )

    def _provider_terminal(self, request: RolloutRequest, task: Task, sandbox: Sandbox) -> ProviderTerminal:
        """The same of a sandbox that is not this process's."""
        settings = self._settings
        return ProviderTerminal(
            sandbox,
            task,
            settings.command_timeout_s,
            settings.grade_timeout_s,
            settings.observation_chars,
            vanished_before=request.vanished > 0,
            tools=self._agent.tools,
        )

    def _rewarding(self, request: RolloutRequest) -> RewardFunction:
        """No judge is asked about evaluations: nobody trains their turns."""
        return self._rewards if request.purpose == TRAIN_PURPOSE else self._rewards.without_judge()

    async def _run_episode(self, request: RolloutRequest) -> Trajectory:
        settings, task = self._settings, self._tasks[request.task]
        episode_settings = replace(settings.episode, reward=self._rewarding(request))
        started_at, begun = time.time(), time.monotonic()
        deadlines = StageDeadlines.for_episode(
            asyncio.get_running_loop().time(),
            settings.episode_deadline_s,
            evaluate_s=settings.grade_timeout_s,
            after_s=settings.reward.judge_s + settings.cleanup_timeout_s,
        )
        recorder = EpisodeRecorder(self._events, settings.run_dir, request, task, settings.name)
        try:
            if self._environments is not None:
                trajectory = await self._environments.run_episode(request, task, episode_settings, recorder, deadlines)
            else:
                trajectory = await self._run_in_sandbox(request, task, episode_settings, recorder, deadlines)
        finally:
            recorder.close()
        trajectory = replace(
            trajectory,
            node=settings.node,
            worker=settings.name,
            started_at=started_at,
            timings_ms={**trajectory.timings_ms, "total": (time.monotonic() - begun) * 1000},
        )
        recorder.finished(trajectory)
        return trajectory

    async def _run_in_sandbox(
        self,
        request: RolloutRequest,
        task: Task,
        settings: EpisodeSettings,
        recorder: EpisodeRecorder,
        deadlines: StageDeadlines,
    ) -> Trajectory:
        begun = time.monotonic()
        async with self._sandbox(task, sandbox_group_of(request, self._settings.provider)) as sandbox:
            self._events.emit("sandbox.started", trajectory=request.trajectory_id)
            acquire_ms = (time.monotonic() - begun) * 1000
            session = sandbox.session if isinstance(sandbox, LocalSandbox) else None
            if self._harnesses is not None and session is not None:
                place = self._terminal(request, task, session)
                trajectory = await self._harnesses.run_episode(
                    request, task, place, settings, recorder, deadlines=deadlines
                )
            else:
                terminal = TimedTerminal(
                    self._terminal(request, task, session)
                    if session is not None
                    else self._provider_terminal(request, task, sandbox),
                    self._activity,
                )
                trajectory = await AgentEpisode(
                    *(request, task, self._agent, self._chat, self._generate, terminal),
                    *(settings, recorder, deadlines),
                ).run()
        return replace(trajectory, timings_ms={**trajectory.timings_ms, "acquire": acquire_ms})
