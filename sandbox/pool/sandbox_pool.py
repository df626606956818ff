"""Sandboxes for many episodes: bounded in number, started as fast as the machine can, kept alive by one heartbeat.

A session is a container with its task's services and network (:mod:`sandbox.networking.task_services`): all of it
exists when :meth:`SandboxPool.open` returns, and is removed when the session is closed, could not be opened, or its
pool ends. A task that needs only a container may get a warm one (:mod:`sandbox.pool.warm_pool`).

A container stays alive because this process extends its deadline every few seconds. When the process dies, its
containers end by themselves, so that no exit handler is needed; the clean-up at start only removes networks, committed
images and containers that were never started, and only those with the pool's own name whose owner is proved dead or
that have long expired.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from protocol.errors import InfraError, UserError
from protocol.processes import open_files
from sandbox.agent_programs import AgentPrograms
from sandbox.docker.container_spec import ImageConfig
from sandbox.docker.engine import DockerEngine, MachineSize
from sandbox.docker.labels import POOL_PROCESS_LABEL
from sandbox.docker.retry import DockerEngineError
from sandbox.egress_proxy.lazy_proxy import LazyEgressProxy
from sandbox.errors import SandboxLost, SandboxStartError
from sandbox.host_record import SandboxHost, current_host
from sandbox.images.store import ImageSettings, ImageStore
from sandbox.networking.networks import NO_NETWORK, BuildNetworkContainer, SandboxNetworks
from sandbox.networking.task_services import ContainerNetwork, TaskServices, is_single_container
from sandbox.pool.cleanup import PoolCleanup
from sandbox.pool.container_template import NO_SERVICES, ContainerTemplate
from sandbox.pool.disk_bound import DiskBound, probe_disk_bound
from sandbox.pool.disk_watch import DiskWatch
from sandbox.pool.heartbeat import SessionHeartbeat
from sandbox.pool.login_shells import LoginShells
from sandbox.pool.machine_size import check_machine
from sandbox.pool.settings import PoolSettings, PoolStatistics
from sandbox.pool.unanswered_calls import UnansweredCallCleanup
from sandbox.pool.warm_pool import WarmPool
from sandbox.pool.warm_sandboxes import ContainerKind
from sandbox.session.sandbox_session import SandboxSession, SessionLimits, TestsImage
from sandbox.session.snapshot import snapshot
from sandbox.tasks.task import Task

_CLAIM_S = 60.0
"""Seconds beyond the longest start after which a created but unstarted container counts as an orphan."""


class SandboxPool:
    """The sandboxes of one process: ``async with SandboxPool(settings) as pool, pool.acquire(task) as session: ...``"""

    def __init__(
        self, settings: PoolSettings, host: SandboxHost | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.host = host or current_host()
        self.engine = DockerEngine(self.host.docker_url)
        self.egress_proxy = LazyEgressProxy(self.host.home / "egress_proxy", settings.containers)
        self._template = ContainerTemplate(settings, self.host, now)
        self._cleanup = PoolCleanup(self.engine, settings, self._template, now)
        self._warm_pool = WarmPool(self.engine, settings, self._template.container_spec)
        self._login_shells = LoginShells(self.engine, self._template.container_spec)
        self._heartbeat = SessionHeartbeat(settings.containers.heartbeat_timeout_s, self._warm_pool)
        self._warm_pool.on_warm_started = self._heartbeat.resume_when_broken
        self._sessions: dict[SandboxSession, AsyncExitStack] = {}
        """Each session that was handed out, with the resources that end with it: its container, services and
        network."""
        self._closing = asyncio.TaskGroup()
        self._images: ImageStore | None = None
        self._task_services: TaskServices | None = None
        self._open = AsyncExitStack()
        self._closed = self._failed = self._swept = 0
        self._machine = MachineSize(0, 0)
        """What the engine's machine has, once the pool is open."""
        self._image_configs: dict[str, ImageConfig] = {}

    async def __aenter__(self) -> Self:
        open_files.raise_open_file_limit()
        template = self._template
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.engine)
            await self.remove_abandoned()
            template.live_restore = await self.engine.has_live_restore()
            self._machine = await self.engine.machine()
            await stack.enter_async_context(self.egress_proxy)
            labels = template.labels(self.settings.containers.max_lifetime_s)
            networks = await SandboxNetworks.open(
                self.engine, self.egress_proxy, BuildNetworkContainer(self.host.base_image, self.host.toolchain, labels)
            )
            allowed = self.settings.containers.allow_registries
            settings = ImageSettings(self.host.home, template.default_image, allow_registries=allowed)
            self._images = await ImageStore.open(self.engine, settings, networks.build_network)
            self._task_services = TaskServices(self.engine, self._images, networks, template.service_settings)
            probed = template.container_kind(Task("probe", ""), template.default_image)
            like = template.container_spec(probed, self.settings.containers.start_timeout_s)
            template.disk_bound = await probe_disk_bound(self.engine, like, loop=self.settings.disk_loop)
            stack.push_async_callback(self._cleanup.drain)
            await stack.enter_async_context(self._warm_pool)
            self._closing = await stack.enter_async_context(asyncio.TaskGroup())
            stack.callback(self._end_all)
            background = [
                UnansweredCallCleanup(
                    self.engine,
                    {POOL_PROCESS_LABEL: template.process_id},
                    self.settings.containers.start_timeout_s + _CLAIM_S,
                ).run()
            ]
            if template.disk_bound is not DiskBound.FILE_SIZE:
                background.append(DiskWatch(self._heartbeat.writable_sessions, template.disk_bound).run())
            await stack.enter_async_context(self._heartbeat.running(*background))
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()  # raise the caller's own error as it is, not in a group

    @property
    def disk_bound(self) -> DiskBound:
        """Means that enforces the disk limit on this host, once the pool is open."""
        return self._template.disk_bound

    @asynccontextmanager
    async def acquire(self, task: Task, deadline_s: float | None = None) -> AsyncGenerator[SandboxSession]:
        """Yield a fresh sandbox that is set up for ``task`` and lives for at most ``deadline_s`` (default: the pool's
        maximum).

        Raises SandboxStartError (TaskFault if the task itself is at fault), and UserError if this machine cannot
        provide what the task needs.
        """
        session = await self.open(task, deadline_s)
        try:
            yield session
        finally:
            await self.close(session)

    async def open(
        self, task: Task, deadline_s: float | None = None, programs: AgentPrograms | None = None
    ) -> SandboxSession:
        """Like :meth:`acquire` without the context: the caller must :meth:`close` the session.

        ``programs`` are mounted in place of the pool's own.
        """
        lifetime_s = deadline_s or self.settings.containers.max_lifetime_s
        try:
            async with AsyncExitStack() as stack:
                session, kind = await self._opened(task, programs, lifetime_s, stack)
                self._sessions[session] = stack.pop_all()
        except DockerEngineError as error:
            raise SandboxStartError(f"no sandbox for task {task.id}: {error}") from error
        if is_single_container(task):
            self._warm_pool.refill(kind)
        return session

    async def _opened(
        self, task: Task, programs: AgentPrograms | None, lifetime_s: float, stack: AsyncExitStack
    ) -> tuple[SandboxSession, ContainerKind]:
        """Open a session that ends with ``stack``."""
        check_machine(task, self._machine)
        image = await stack.enter_async_context(self.images.reserve(task))
        tests_images = await self._tests_images(task, stack)
        kind = await self._kind_for(task, image, programs=programs)
        session = await self._warm_pool.take_warm(kind) if is_single_container(task) else None
        if session is None:
            await self._warm_pool.acquire_slot()
            stack.callback(self._warm_pool.release_slot)
            network = await stack.enter_async_context(self.task_services.started_for(task, image, lifetime_s))
            kind = await self._kind_for(task, image, network, programs)
            session = await self._warm_pool.start_sandbox(kind, lifetime_s)
        else:
            stack.callback(self._warm_pool.release_slot)
        await self._begin(session, task, lifetime_s, stack)
        session.tests_images, session.login_variables = tests_images, kind.login
        try:
            await session.setup(task, self.settings.setup_timeout_s)
        except SandboxStartError:
            self._failed += 1
            raise
        return session, kind

    async def _kind_for(
        self,
        task: Task,
        image: str,
        network: ContainerNetwork = NO_SERVICES,
        programs: AgentPrograms | None = None,
    ) -> ContainerKind:
        kind = self._template.container_kind(task, image, await self._image_config(image), network, programs)
        return replace(kind, login=await self._login_shells.variables(task, kind))

    async def _image_config(self, image: str) -> ImageConfig:
        """Return the image's configuration, which is read once."""
        if image not in self._image_configs:
            self._image_configs[image] = await self.engine.image_config(image)
        return self._image_configs[image]

    async def _tests_images(self, task: Task, stack: AsyncExitStack) -> tuple[TestsImage, ...]:
        """Return the images that tests have of their own, present until ``stack`` ends."""
        found = list[TestsImage]()
        for own in task.tests_environments:
            if own.has_image:
                name = await stack.enter_async_context(self.images.reserve(own))
                found.append(TestsImage(own, name, await self._image_config(name)))
        return tuple(found)

    async def adopt(
        self, container: str, task: Task, deadline_s: float | None = None, *, step: int = 0
    ) -> SandboxSession:
        """Take over a running container of this pool whose process has died, at a step of its task, with its services
        and network; its commands are killed.

        Raises SandboxLost, UserError.
        """
        if self._warm_pool.is_full:
            raise SandboxLost(f"container {container[:12]} does not fit into a pool of {self.settings.capacity}")
        lifetime_s = deadline_s or self.settings.containers.max_lifetime_s
        try:
            async with AsyncExitStack() as stack:
                await self._warm_pool.acquire_slot()
                stack.callback(self._warm_pool.release_slot)
                image = await stack.enter_async_context(self.images.keep(task))
                network = await stack.enter_async_context(self.task_services.adopted_for(task, container))
                kind = await self._kind_for(task, image, network)
                session = await SandboxSession.adopt(self.engine, container, kind.workdir)
                session.spec = self._template.container_spec(kind, lifetime_s)  # so it can be copied and graded
                session.login_variables = kind.login
                await session.find_users(task.in_steps[step])
                session.tests_images = await self._tests_images(task, stack)
                await self._begin(session, task, lifetime_s, stack)
                self._sessions[session] = stack.pop_all()
        except (DockerEngineError, SandboxStartError) as error:
            raise SandboxLost(f"container {container[:12]} could not be taken over: {error}") from error
        return session

    async def fork(self, session: SandboxSession, deadline_s: float | None = None) -> SandboxSession:
        """Open a second sandbox with this session's files as they are now, and with its shell's directory.

        The second one takes a slot of its own, and the caller must :meth:`close` it. Raises UserError for a sandbox
        that has a network, SandboxLost where it cannot be copied, SandboxStartError.
        """
        spec, lifetime_s = session.spec, deadline_s or self.settings.containers.max_lifetime_s
        if spec is None or spec.network != NO_NETWORK:
            raise UserError("a sandbox with services or a network of its own cannot be forked: open another one")
        async with AsyncExitStack() as stack:
            await self._warm_pool.acquire_slot()
            stack.callback(self._warm_pool.release_slot)
            image = await stack.enter_async_context(snapshot(session))
            like = replace(spec, image=image, committed_from=spec.task_image, labels=self._template.labels(lifetime_s))
            limits = SessionLimits(min(self.settings.containers.heartbeat_timeout_s, lifetime_s), lifetime_s)
            copy = await SandboxSession.start(self.engine, like, session.shell.cwd, limits)
            stack.push_async_callback(self.engine.remove, copy.container)  # an image in use cannot be removed
            copy.workdir = session.workdir
            copy.agent_user, copy.tests_user = session.agent_user, session.tests_user
            copy.login_variables = session.login_variables
            await copy.set_agent_user(session.agent_user)
            await self._begin(copy, Task("fork", ""), lifetime_s, stack)
            self._sessions[copy] = stack.pop_all()
        return copy

    async def _begin(self, session: SandboxSession, task: Task, lifetime_s: float, stack: AsyncExitStack) -> None:
        """Make a running container a session of the pool, which ends with ``stack``."""
        stack.push_async_callback(session.close)
        self._heartbeat.watch(session, lifetime_s)
        stack.callback(self._heartbeat.unwatch, session)
        await stack.enter_async_context(self.task_services.network_phases(task, session))

    async def close(self, session: SandboxSession) -> None:
        """End a session that :meth:`open` or :meth:`adopt` returned, even when this is cancelled.

        Does not raise: what an unresponsive daemon keeps ends at its own deadline or is swept.
        """
        held = self._sessions.pop(session, None)
        if held is not None:
            await asyncio.shield(self._closing.create_task(self._ended(held)))

    async def _ended(self, held: AsyncExitStack) -> None:
        with contextlib.suppress(InfraError):
            await held.aclose()
        self._closed += 1

    def _end_all(self) -> None:
        while self._sessions:
            self._closing.create_task(self._ended(self._sessions.popitem()[1]))

    async def prewarm(self, task: Task, count: int) -> None:
        """Wait until ``count`` warm sandboxes of the task's kind exist, or as many as fit into the pool.

        Does nothing for a task that needs more than a container.
        """
        if not is_single_container(task):
            return
        async with self.images.reserve(task) as image:
            self._warm_pool.refill(await self._kind_for(task, image), count)
            await self._warm_pool.wait_until_filled()

    def wait_s(self) -> float:
        """Return the estimated seconds until the start of a new request begins."""
        return self._warm_pool.start_limiter.concurrency_limit.estimate_wait_s(self._warm_pool.queued)

    async def remove_abandoned(self) -> int:
        """Remove what processes that died left of this pool; see :meth:`PoolCleanup.remove_abandoned`."""
        removed = await self._cleanup.remove_abandoned()
        self._swept += removed
        return removed

    async def remove_orphans(self) -> int:
        """Remove what carries this pool's name and was neither created by this process nor adopted; no other process
        may use the name.

        Returns how many were removed.  Raises DockerEngineError.
        """
        return await self._cleanup.remove_orphans(self._heartbeat)

    @property
    def images(self) -> ImageStore:
        """The store of the tasks' images, while the pool is open."""
        if self._images is None:
            raise RuntimeError("use `async with SandboxPool(...)`")
        return self._images

    @property
    def task_services(self) -> TaskServices:
        """The services and networks of the tasks' containers, while the pool is open."""
        if self._task_services is None:
            raise RuntimeError("use `async with SandboxPool(...)`")
        return self._task_services

    def statistics(self) -> PoolStatistics:
        """Return the pool's counts."""
        warm_pool = self._warm_pool
        mean = warm_pool.start_ms / warm_pool.started if warm_pool.started else 0.0
        return PoolStatistics(
            self.settings.capacity,
            len(self._heartbeat),
            warm_pool.starting,
            warm_pool.queued,
            warm_pool.started,
            self._closed,
            self._failed + warm_pool.failed,
            self._swept,
            mean,
            len(warm_pool),
            warm_pool.hits,
            warm_pool.start_limiter.concurrency_limit.limit,
        )
