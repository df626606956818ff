"""Makes the images of an evaluation's tasks while its attempts run, in the attempts' order.

An attempt whose image is still to be made takes no sandbox: later ones go first.  What cannot be made, or does not fit
into the budget of images, is left to the attempts, which make it or fail with the reason.  An image whose last attempt
has ended may be evicted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rich.console import Console

from protocol.evaluation import AttemptId
from protocol.processes.task_groups import task_group
from sandbox.docker.retry import DockerEngineError
from sandbox.images.prefetch import ImageBudgetError, ImagePrefetch, ImageState, PrefetchedImage, prefetched_by_task
from sandbox.images.prefetch_display import PrefetchDisplay
from sandbox.images.store import ImageStore
from sandbox.tasks.task import Task

_SETTLED = (ImageState.READY, ImageState.FAILED)


@dataclass(slots=True)
class AttemptImages:
    """The images of the tasks of attempts, and the attempts that wait."""

    attempts: Iterable[AttemptId]
    tasks: Mapping[str, Task]
    store: ImageStore
    console: Console
    _waiting: list[AttemptId] = field(init=False)
    _images: dict[str, list[PrefetchedImage]] = field(init=False)
    """Images by the task that needs them."""
    _unfinished: Counter[str] = field(init=False)
    """Attempts that need an image and have not ended, by its name."""
    _prefetch: ImagePrefetch = field(init=False)
    _display: PrefetchDisplay = field(init=False)
    _on_demand: bool = False
    """Whether images that are missing are left to the attempts."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, when an attempt may have become ready."""

    def __post_init__(self) -> None:
        self._waiting = [*self.attempts]
        tasks = {name: self.tasks[name] for name in dict.fromkeys(each.task for each in self._waiting)}
        images, self._images = prefetched_by_task(tasks)
        self._unfinished = Counter(image.name for each in self._waiting for image in self._images[each.task])
        self._display = PrefetchDisplay(images, self.console)
        self._prefetch = ImagePrefetch(self.store, images, self._note_change)

    @asynccontextmanager
    async def making(self) -> AsyncGenerator[None]:
        """Make images until the block ends; none is evicted before its last attempt has ended.  Raises
        DockerEngineError."""
        async with self._prefetch, task_group() as group:
            making = group.create_task(self._make_missing(), name="images")
            try:
                yield
            finally:
                making.cancel()

    async def take(self) -> AttemptId | None:
        """Wait for the first attempt that need not wait for an image, and return it; None if there is none left."""
        while self._waiting:
            for at, attempt in enumerate(self._waiting):
                if self._can_start(attempt.task):
                    return self._waiting.pop(at)
            await self._changed.wait()
        return None

    async def finish(self, attempt: AttemptId) -> None:
        """Release the images that no other attempt needs, now that one has ended."""
        for image in self._images[attempt.task]:
            self._unfinished[image.name] -= 1
            if not self._unfinished[image.name]:
                await self._prefetch.release(image.name)

    def _can_start(self, task: str) -> bool:
        return self._on_demand or all(image.state in _SETTLED for image in self._images[task])

    async def _make_missing(self) -> None:
        try:
            await self._prefetch.make_missing()
        except (ImageBudgetError, DockerEngineError) as error:
            self.console.print(f"missing images are made when an attempt needs them: {error}")
            self._on_demand = True
            self._wake()

    def _note_change(self, image: PrefetchedImage) -> None:
        self._display.note_change(image)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
