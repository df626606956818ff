"""Makes the images that many tasks need, several at a time and in the tasks' order, and keeps them.

Images that exist are reserved first; what is missing is built or pulled, each image once however many tasks need it.
Each stays reserved until it is released or the ``async with`` block ends, so that none is evicted for another.  A
failed image does not stop the others; a full budget or disk does.  After an interruption the engine keeps finished
images, and the finished steps of builds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self

from protocol.errors import LongshoreError
from protocol.processes.task_groups import task_group
from sandbox.errors import ImageError
from sandbox.images.engine_log import NO_PROGRESS, ImageProgress
from sandbox.images.image_names import NeededImage, TaskWithImage, image_for, images_of
from sandbox.images.store import ImageStore
from sandbox.tasks.task import Task

_DISK_FULL = "no space left on device"


class ImageBudgetError(LongshoreError):
    """The budget of images, or the engine's disk, has no room for another."""

    def __init__(self, message: str, *, disk: bool = False) -> None:
        super().__init__(message)
        self.disk = disk


class ImageState(StrEnum):
    WAITING = "waiting"
    MAKING = "making"
    READY = "ready"
    FAILED = "failed"


@dataclass(slots=True)
class PrefetchedImage:
    """An image and how far it is."""

    name: str
    source: TaskWithImage
    needed_by: list[str]
    """``TASK``, ``TASK/SERVICE`` or ``TASK/tests``, in the tasks' order."""
    state: ImageState = ImageState.WAITING
    existed: bool = False
    """The engine had it before."""
    progress: ImageProgress = NO_PROGRESS
    began: float = 0.0
    """Time of the build's or pull's begin, on the monotonic clock."""
    error: ImageError | None = None

    @property
    def title(self) -> str:
        """Who needs it, for people."""
        others = len(self.needed_by) - 1
        return f"{self.needed_by[0]} and {others} more" if others else self.needed_by[0]


def prefetched_images(needed: Iterable[NeededImage]) -> list[PrefetchedImage]:
    """Return each image once, in the order in which it is needed first."""
    found: dict[str, PrefetchedImage] = {}
    for each in needed:
        name = image_for(each.source)
        found.setdefault(name, PrefetchedImage(name, each.source, [])).needed_by.append(each.needed_by)
    return list(found.values())


def prefetched_by_task(tasks: Mapping[str, Task]) -> tuple[list[PrefetchedImage], dict[str, list[PrefetchedImage]]]:
    """Return each image that tasks need once, in their order, and the images by the name of the task."""
    needed = {name: [*images_of(task)] for name, task in tasks.items()}
    images = prefetched_images(each for needs in needed.values() for each in needs)
    found = {image.name: image for image in images}
    return images, {name: [found[image_for(each.source)] for each in needs] for name, needs in needed.items()}


def _ignore_change(image: PrefetchedImage) -> None:
    del image


class ImagePrefetch:
    """``async with ImagePrefetch(store, images) as prefetch: await prefetch.make_missing()``."""

    def __init__(
        self,
        store: ImageStore,
        images: Sequence[PrefetchedImage],
        on_change: Callable[[PrefetchedImage], None] = _ignore_change,
    ) -> None:
        """``on_change`` is called when an image changes its state."""
        self.images = images
        self._store, self._on_change = store, on_change
        self._kept: dict[str, AsyncExitStack] = {}
        """Reservations by image."""

    async def __aenter__(self) -> Self:
        """Reserve what exists.  Raises DockerEngineError."""
        async with AsyncExitStack() as failing:
            failing.push_async_callback(self._release_all)
            before = await self._store.sizes()
            for image in self.images:
                if image.name in before:
                    stack = self._kept[image.name] = AsyncExitStack()
                    await stack.enter_async_context(self._store.keep(image.source))
            reserved = await self._store.sizes()  # an image may have been evicted before it was reserved
            for image in self.images:
                if image.name in before and image.name in reserved:
                    image.existed = True
                    self._move(image, ImageState.READY)
            failing.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._release_all()

    async def release(self, name: str) -> None:
        """Let an image be evicted, if it is reserved."""
        if reservation := self._kept.pop(name, None):
            await reservation.aclose()

    async def _release_all(self) -> None:
        for name in [*self._kept]:
            await self.release(name)

    async def make_missing(self, in_order: Callable[[], Iterable[PrefetchedImage]] | None = None) -> None:
        """Make what waits, each time the first of ``in_order``, by default of all.  Raises ImageBudgetError,
        DockerEngineError."""

        def next_image() -> PrefetchedImage | None:
            images = in_order() if in_order else self.images
            return next((image for image in images if image.state is ImageState.WAITING), None)

        async def make_each() -> None:
            while (image := next_image()) is not None:
                await self._make(image)

        async with task_group() as group:
            for _ in range(self._store.settings.concurrency):
                group.create_task(make_each())

    async def _make(self, image: PrefetchedImage) -> None:
        """Make one image; a failure is its :attr:`~PrefetchedImage.error`.  Raises ImageBudgetError,
        DockerEngineError."""
        image.began = time.monotonic()
        self._move(image, ImageState.MAKING)
        try:
            await self._reserve(image)
        except ImageError as error:
            if _DISK_FULL in str(error):
                raise ImageBudgetError("the disk of the Docker engine is full", disk=True) from error
            image.error = error
            self._move(image, ImageState.FAILED)
        except ImageBudgetError:
            await self._store.prune()  # removes this image, because all others are reserved
            raise
        else:
            self._move(image, ImageState.READY)

    async def _reserve(self, image: PrefetchedImage) -> None:
        async with AsyncExitStack() as making:
            await making.enter_async_context(self._store.reserve(image.source, _reporter(image)))
            await self._check_budget()
            self._kept[image.name] = making.pop_all()

    async def _check_budget(self) -> None:
        if await self._store.exceeds_quota():
            raise ImageBudgetError("the budget of images is full, and everything in it is in use or was asked for")

    def _move(self, image: PrefetchedImage, state: ImageState) -> None:
        image.state = state
        self._on_change(image)


def _reporter(image: PrefetchedImage) -> Callable[[ImageProgress], None]:
    """Return a receiver of the progress of ``image``."""

    def report(progress: ImageProgress) -> None:
        image.progress = progress

    return report
