"""Makes the images of a worker's tasks in the background, and reports to the scheduler which are still missing.

The scheduler says in which order they are needed, and assigns no episode that would wait for one.  If the budget of
images or the disk is full, or the engine fails, the rest is made when an episode asks for it.  An image that cannot be
built makes its tasks unusable on this worker; any other failure does so when it happens twice.  It is tried again, ever
more rarely, until it is made.  A worker to which nothing is missing reports too, because a task is excluded only if no
worker can start it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.scheduler.task_images import TaskImages
from protocol.events import EventLog
from protocol.processes.task_groups import task_group
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import TaskFault
from sandbox.images.prefetch import ImageBudgetError, ImagePrefetch, ImageState, PrefetchedImage, prefetched_by_task
from sandbox.images.store import ImageStore
from sandbox.tasks.task import Task

REPORT_S = 5.0
"""Longest time between two reports until all images are there, so that a restarted scheduler has one soon."""
_RETRY_S = 1.0
_RETRY_FACTOR = 4
_LONGEST_RETRY_S = 4 * 3600.0
"""Longest time between two tries at an image."""


@dataclass(slots=True)
class ImagePrefetcher:
    """The images of a worker's tasks."""

    scheduler: Remote[RolloutScheduler]
    worker: str
    incarnation: str
    tasks: Mapping[str, Task]
    store: ImageStore
    events: EventLog
    _images: list[PrefetchedImage] = field(init=False)
    _images_of: dict[str, list[PrefetchedImage]] = field(init=False)
    """Images by the task that needs them."""
    _order: Sequence[str] = ()
    """Tasks in the order in which their images are needed."""
    _tried: set[str] = field(default_factory=set[str])
    """Images that have failed once."""
    _failed: dict[str, str] = field(default_factory=dict[str, str])
    """Why images that make their tasks unusable have failed, by name."""
    _on_demand: bool = False
    """Whether images that are missing are left to the episodes."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._images, self._images_of = prefetched_by_task(self.tasks)

    @asynccontextmanager
    async def prefetching(self) -> AsyncGenerator[None]:
        """Make images until the block ends; it begins once the scheduler knows what is missing.  None of them is
        evicted meanwhile."""
        if not self._images:
            yield
            return
        reported = asyncio.Event()
        async with task_group() as group:
            running = group.create_task(self._run(reported), name="images")
            await reported.wait()
            try:
                yield
            finally:
                running.cancel()

    async def _run(self, reported: asyncio.Event) -> None:
        try:
            async with ImagePrefetch(self.store, self._images, self._note_change) as prefetch:
                await self._report()
                reported.set()
                await self._make_missing(prefetch)
                await asyncio.Event().wait()
        except DockerEngineError as error:
            self._leave_to_episodes(error)
            await self._report()
        finally:
            reported.set()

    async def _make_missing(self, prefetch: ImagePrefetch) -> None:
        async with task_group() as group:
            reporting = group.create_task(self._keep_reporting())
            try:
                await prefetch.make_missing(self._in_order)
                await self._retry_failed(prefetch)
            except (ImageBudgetError, DockerEngineError) as error:
                self._leave_to_episodes(error)
            reporting.cancel()
        await self._report()

    async def _retry_failed(self, prefetch: ImagePrefetch) -> None:
        wait_s = self.store.settings.failure_memory_s
        while failed := [image for image in self._images if image.state is ImageState.FAILED]:
            await asyncio.sleep(wait_s)
            for image in failed:
                image.state, image.error = ImageState.WAITING, None
            await prefetch.make_missing(self._in_order)
            wait_s = min(wait_s * _RETRY_FACTOR, _LONGEST_RETRY_S)

    def _in_order(self) -> Iterator[PrefetchedImage]:
        for name in (*self._order, *self.tasks):
            yield from self._images_of.get(name, ())

    def _note_change(self, image: PrefetchedImage) -> None:
        if image.state is ImageState.READY:
            self._failed.pop(image.name, None)
        elif image.state is ImageState.FAILED:
            if isinstance(image.error, TaskFault) or image.name in self._tried:
                self._failed[image.name] = str(image.error)
            self._tried.add(image.name)
        self._changed.set()

    def _leave_to_episodes(self, error: ImageBudgetError | DockerEngineError) -> None:
        self._on_demand = True
        self.events.emit("images.on_demand", worker=self.worker, reason=str(error))

    # -- reports -------------------------------------------------------------------------------------------------

    def _summary(self) -> TaskImages:
        failed = {
            name: self._failed[image.name]
            for name, images in self._images_of.items()
            for image in images
            if image.name in self._failed
        }
        missing = {
            name
            for name, images in self._images_of.items()
            if name not in failed and any(image.state is not ImageState.READY for image in images)
        }
        return TaskImages(frozenset() if self._on_demand else frozenset(missing), failed)

    async def _report(self) -> None:
        """Report until the scheduler answers; it may be restarting."""
        while True:
            try:
                self._order = await self.scheduler.call(
                    RolloutScheduler.report_images, self.worker, self.incarnation, self._summary()
                )
            except RemoteError:
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _keep_reporting(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._changed.wait()
            self._changed.clear()
            await self._report()
