"""The rollout worker's actor: many episodes in one event loop, on one node.

It polls the scheduler for as many requests as it has free slots (:mod:`~actors.workers.request_poller`), runs each as
one episode in a sandbox of its own (:mod:`~actors.workers.episode_runner`), sends the trajectory to the buffer and
reports the request finished once the buffer has acknowledged it (:mod:`~actors.workers.attempt_runner`).  Meanwhile it
makes the images of tasks that wait for theirs (:mod:`~actors.workers.image_prefetcher`).  If
infrastructure fails an episode, its request is given back with the reason; no episode can end the worker.  The worker
ends when it is stopped, when its ``run`` is cancelled or when its actor dies; its containers end at their deadline at
the latest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import zlib
from collections.abc import AsyncGenerator, Collection, Mapping

from actors.agents.registry import load_call_format, make_agent
from actors.agents.settings import ToolsetKind
from actors.engines.interface import Engine
from actors.engines.messages import GenerateReply, GenerateRequest, OnPartialReply
from actors.engines.remote_engine import RemoteEngine, polling_engines
from actors.engines.routing.router import Router
from actors.harnesses.installation import require_installed
from actors.rewards.composite import open_reward
from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.tokens.chat_format import load_chat_format
from actors.workers.attempt_runner import AttemptRunner
from actors.workers.environment_runner import EnvironmentRunner
from actors.workers.episode_runner import EpisodeRunner
from actors.workers.harness_runner import HarnessRunner
from actors.workers.image_prefetcher import ImagePrefetcher
from actors.workers.request_poller import RequestPoller
from actors.workers.sandbox_source import LocalSandboxSource, open_sandbox_source
from actors.workers.settings import WorkerSpec
from protocol.activity import ActivityLog
from protocol.errors import InfraError
from protocol.events import EventLog
from protocol.journal import AppendOutcome
from protocol.run_directory.process_log import bind_log_ids
from protocol.stream.sender import TrajectorySender
from protocol.trajectory import RolloutRequest
from sandbox.browser.installation import require_browser
from sandbox.host_record import current_host
from sandbox.providers.settings import ENVIRONMENT
from sandbox.tasks.task import Task

_STATISTICS_S = 1.0
_DRAIN_S = 5.0
"""Longest wait at the end for acknowledgements of sent trajectories, so that they need not be sampled again."""


class RolloutWorker:
    """The worker's actor.  :meth:`run` may be called again after it was cancelled."""

    def __init__(
        self,
        spec: WorkerSpec,
        scheduler: Remote[RolloutScheduler],
        engines: tuple[Remote[Engine], ...],
        episode_runner: type[EpisodeRunner] = EpisodeRunner,
        judge_engines: tuple[Remote[Engine], ...] = (),
    ) -> None:
        """``judge_engines`` serve the judge, if the run serves one itself."""
        self._spec, self._scheduler, self._episode_runner = spec, scheduler, episode_runner
        first = zlib.crc32(spec.name.encode()) % len(engines)
        self._engines = [RemoteEngine(engine) for engine in engines]
        self._judge_engines = [RemoteEngine(engine).generate for engine in judge_engines]
        self._router = Router(self._engines, first=first, max_versions_behind=spec.max_versions_behind)
        self._events = EventLog(spec.run_dir, spec.name, spec.node)
        self._activity = ActivityLog(spec.run_dir, spec.name, "worker")
        self._poller = RequestPoller(scheduler, spec.name, spec.episodes, spec.online_evaluation)
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, tasks: Mapping[str, Task]) -> None:
        """Work on ``tasks`` (by id) until :meth:`stop` or until cancelled; :meth:`stop` waits for the clean-up.

        A caller whose connection broke may call again while the first call's work continues, and waits for its end.
        Raises InfraError if that work then ends before :meth:`stop`."""
        if not self._idle.is_set():
            await self._idle.wait()
            if not self._poller.stopping.is_set():
                raise InfraError(f"the work of {self._spec.name} has ended")
            return
        self._idle.clear()
        try:
            await self._work(tasks, f"{os.getpid()}.{secrets.token_hex(8)}")
        finally:
            self._idle.set()

    async def stop(self) -> None:
        """Fetch no more requests and cancel the running episodes.  Returns when the sandboxes are gone."""
        self._poller.stop()
        await self._idle.wait()

    async def cancel_training(self) -> None:
        """Cancel the running training episodes, which are no longer needed."""
        self._poller.cancel_training()

    async def cancel_attempts(self, trajectories: Collection[str]) -> None:
        """Cancel the running episodes of these trajectories on a person's request."""
        self._poller.cancel_trajectories(trajectories)

    async def _work(self, tasks: Mapping[str, Task], incarnation: str) -> None:
        spec = self._spec
        async with (
            self._open_episodes() as episodes,
            TrajectorySender(
                spec.endpoint,
                spec.run_id,
                f"{spec.name}#{incarnation}",
                curve=spec.curve,
                on_acknowledged=self._on_acknowledged,
            ) as sender,
            polling_engines(self._engines, self._router.update_load),
        ):
            attempts = AttemptRunner(
                settings=spec.limits,
                tasks=tasks,
                run_episode=episodes.run,
                sender=sender,
                scheduler=self._scheduler,
                activity=self._activity,
            )
            try:
                async with asyncio.TaskGroup() as group:
                    await self._scheduler.call(RolloutScheduler.register_worker, spec.name, incarnation)
                    self._events.emit("worker.started", worker=spec.name, incarnation=incarnation)
                    group.create_task(self._keep_emitting_statistics(episodes), name="statistics")
                    activity = group.create_task(self._activity.write_periodically(), name="activity")
                    lag = group.create_task(self._events.emit_loop_lag(), name="loop lag")
                    async with self._prefetching_images(episodes, tasks, incarnation):
                        await self._poller.poll(
                            incarnation, group, lambda request: self._run_attempt(attempts, request)
                        )
                    activity.cancel()
                    lag.cancel()
            finally:
                if left := await sender.drain(_DRAIN_S):
                    self._events.emit("sender.closed", worker=spec.name, unacknowledged=[*left])

    @contextlib.asynccontextmanager
    async def _open_episodes(self) -> AsyncGenerator[EpisodeRunner]:
        """Open the episodes' resources: sandboxes, the chat format, harnesses or environment services, and the
        reward.  Raises UserError if the harness or the browser is not installed."""
        spec, provider = self._spec, self._spec.provider
        if provider is None and (published := spec.harness.published_harness) is not None:
            require_installed(current_host().home, published)
        if spec.agent.settings.toolset is ToolsetKind.BROWSER:
            require_browser(current_host().home)
        thinking = spec.agent.settings.thinking.template_argument
        calls = await asyncio.to_thread(load_call_format, spec.agent.settings, spec.model_path)
        agent = make_agent(spec.agent, calls)
        chat = await asyncio.to_thread(load_chat_format, spec.model_path, agent.offered_tools, thinking=thinking)
        async with contextlib.AsyncExitStack() as stack:
            sandboxes = await stack.enter_async_context(
                open_sandbox_source(
                    spec.pool, provider, episodes=spec.episodes, acquire_s=spec.limits.acquire_timeout_s
                )
            )
            environments = harnesses = None
            if provider is not None and provider.name == ENVIRONMENT:
                runner = EnvironmentRunner(spec, provider, chat.tokenizer, self._generate, calls)
                environments = await stack.enter_async_context(runner)
            if spec.harness.harness:
                harnesses = await stack.enter_async_context(
                    HarnessRunner(spec.harness, chat.tokenizer, self._generate, calls)
                )
            yield self._episode_runner(
                spec=spec,
                agent=agent,
                chat=chat,
                generate=self._generate,
                reward=await stack.enter_async_context(open_reward(spec.reward, self._judge_engines)),
                sandboxes=sandboxes,
                harnesses=harnesses,
                environments=environments,
                events=self._events,
                activity=self._activity,
            )

    @contextlib.asynccontextmanager
    async def _prefetching_images(
        self, episodes: EpisodeRunner, tasks: Mapping[str, Task], incarnation: str
    ) -> AsyncGenerator[None]:
        """Make the images of the tasks in the background if the worker has a pool of its own."""
        source, name = episodes.sandboxes, self._spec.name
        if self._spec.online_evaluation or not isinstance(source, LocalSandboxSource):
            yield
            return
        prefetcher = await asyncio.to_thread(  # reads the builds' contexts
            ImagePrefetcher, self._scheduler, name, incarnation, tasks, source.images, self._events
        )
        async with prefetcher.prefetching():
            yield

    async def _run_attempt(self, attempts: AttemptRunner, request: RolloutRequest) -> None:
        try:
            with bind_log_ids(group=request.group, rollout=request.attempt_id):
                await attempts.run(request)
        except asyncio.CancelledError:
            self._events.emit("episode.cancelled", trajectory=request.attempt_id)
            raise

    async def _generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        with self._activity.track("generating"):
            return await self._router.generate(request, watch)

    async def _keep_emitting_statistics(self, episodes: EpisodeRunner) -> None:
        """Emit the pool's statistics every second until :meth:`stop`."""
        stopping = self._poller.stopping
        while not stopping.is_set():
            pool = episodes.statistics()
            self._events.emit(
                "sandbox.counted",
                worker=self._spec.name,
                live=pool.live,
                starting=pool.starting,
                waiting=pool.waiting,
                started=pool.started,
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STATISTICS_S):
                    await stopping.wait()

    def _on_acknowledged(self, request: RolloutRequest, outcome: AppendOutcome) -> None:
        kind = "trajectory.rejected" if outcome is AppendOutcome.UNKNOWN else "trajectory.acknowledged"
        self._events.emit(kind, trajectory=request.trajectory_id, attempt=request.attempt, outcome=outcome.value)
