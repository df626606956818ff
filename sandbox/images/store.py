"""The images of one engine: made once, reserved while they are needed, evicted when they exceed the quota.

``async with store.reserve(task) as image:`` yields a name from which containers can be created until the block ends.
However many ask for the same image, in this process or in others of this machine, one builds it and the others wait; a
failure is remembered for a while, so that a hundred sessions of a broken task do not build a hundred times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from sandbox.docker.engine import DockerEngine
from sandbox.errors import BuildError, ImageError
from sandbox.images import engine_calls
from sandbox.images.build_network import BuildNetworkOpener, open_default_network
from sandbox.images.image_names import image_for, with_tag
from sandbox.images.ledger import ImageLedger
from sandbox.images.quota import choose_image_to_evict, used_bytes
from sandbox.tasks.task import ImageBuild, NetworkMode, Task, TaskService

_LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class ImageSettings:
    home: Path
    """Folder that the machine's processes share."""
    base_image: str
    """Image of tasks that name none; never evicted."""
    quota_bytes: int = 50 << 30
    """Quota of our images, bytes; 0 for no bound."""
    concurrency: int = 2
    """Builds and pulls at once."""
    failure_memory_s: float = 60.0
    """How long a failed image is not tried again."""
    pull_timeout_s: float = 1800.0
    busy_s: float = 60.0
    """Longest wait for another process that evicts the image."""


class ImageStatistics(NamedTuple):
    built: int
    pulled: int
    waited: int
    """Callers that found another at work on their image."""
    failed: int
    refused: int
    """Callers that got a remembered failure."""
    evicted: int


class _Failure(NamedTuple):
    until: float
    error: ImageError


class ImageStore:
    """``async with ImageStore.open(engine, settings) as store``."""

    def __init__(
        self,
        engine: DockerEngine,
        settings: ImageSettings,
        ledger: ImageLedger,
        build_network: BuildNetworkOpener | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._settings, self._ledger, self._now = engine, settings, ledger, now
        self._build_network = build_network or open_default_network
        self._room = asyncio.Semaphore(settings.concurrency)
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._failures: dict[str, _Failure] = {}
        self._evicting = asyncio.Lock()
        self._built = self._pulled = self._waited = self._failed = self._refused = self._evicted = 0

    @classmethod
    async def open(
        cls, engine: DockerEngine, settings: ImageSettings, build_network: BuildNetworkOpener | None = None
    ) -> ImageStore:
        """Raises EngineError."""
        folder = settings.home / "images" / (await engine_calls.find_engine_id(engine)).replace(":", "")
        return cls(engine, settings, ImageLedger(folder), build_network)

    @asynccontextmanager
    async def reserve(self, task: Task | TaskService) -> AsyncGenerator[str]:
        """Yield the task's (or service's) image, present until the block ends.

        Raises ImageError, DockerEngineError.
        """
        if self._is_base(task):
            yield self._settings.base_image
            return
        async with self.keep(task) as name:
            await self._ensure(name, task)
            yield name

    @asynccontextmanager
    async def keep(self, task: Task | TaskService) -> AsyncGenerator[str]:
        """Yield the name of an image that a container uses, not evicted until the block ends.  Raises ImageError."""
        if self._is_base(task):
            yield self._settings.base_image
            return
        name = image_for(task)
        await self._reserve_name(name)
        try:
            yield name
        finally:
            self._ledger.release(name)

    def _is_base(self, task: Task | TaskService) -> bool:
        return task.build is None and task.image in ("", self._settings.base_image)

    async def import_archive(self, archive: Path, name: str) -> None:
        """Import a tar of a root file system.  Raises ImageError, DockerEngineError."""
        await engine_calls.import_archive(self._engine, archive, with_tag(name), self._settings.pull_timeout_s)
        self._ledger.record(with_tag(name))

    async def _reserve_name(self, name: str) -> None:
        give_up = self._now() + self._settings.busy_s
        while not self._ledger.reserve(name):
            if self._now() > give_up:
                raise ImageError(f"the image {name} has been being evicted for {self._settings.busy_s:g} s: try again")
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _ensure(self, name: str, task: Task | TaskService) -> None:
        making = self._making.setdefault(name, asyncio.Lock())  # it goes with the last who holds or awaits it
        self._waited += making.locked()
        async with making:
            if await engine_calls.find_image_id(self._engine, name):
                if task.build is not None and not self._ledger.is_ours(name):
                    self._ledger.record(name)
                return
            failure = self._failures.get(name)
            if failure is not None and self._now() < failure.until:
                self._refused += 1
                raise type(failure.error)(str(failure.error))
            try:
                async with self._room, self._build_lock(name):
                    if not await engine_calls.find_image_id(self._engine, name):
                        await self._make(name, task)
            except ImageError as error:
                self._failed += 1
                self._remember(name, error)
                raise
        await self.prune()

    def _remember(self, name: str, error: ImageError) -> None:
        now = self._now()
        self._failures = {each: failure for each, failure in self._failures.items() if now < failure.until}
        self._failures[name] = _Failure(now + self._settings.failure_memory_s, error)

    @asynccontextmanager
    async def _build_lock(self, name: str) -> AsyncGenerator[None]:
        """Hold the machine-wide right to make this image until the block ends."""
        while True:
            with self._ledger.lock_exclusively(name, "build") as alone:
                if alone:
                    yield
                    return
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _make(self, name: str, task: Task | TaskService) -> None:
        if task.build is None:
            await engine_calls.pull_image(self._engine, name, self._settings.pull_timeout_s)
            self._pulled += 1
        else:
            await self._build(name, task.build, task)
            self._built += 1
        self._ledger.record(name)

    async def _build(self, name: str, context: ImageBuild, task: Task | TaskService) -> None:
        network = task.network if isinstance(task, Task) else None
        timeout_s = task.build_timeout_s if isinstance(task, Task) else self._settings.pull_timeout_s
        mode = network.build if network else NetworkMode.FULL
        async with self._build_network(mode, network.allowed_hosts if network else ()) as place:
            try:
                async with asyncio.timeout(timeout_s):
                    await engine_calls.build_image(
                        self._engine, context, name, network=place.network, args=place.args, timeout_s=timeout_s
                    )
            except TimeoutError as error:
                raise BuildError(f"the build of {name} ran out of its {timeout_s:g} s: raise build_timeout") from error

    async def prune(self, quota_bytes: int | None = None) -> tuple[str, ...]:
        """Evict our images, least recently used first, until they fit the quota.  Returns the evicted names.

        ``quota_bytes`` 0 evicts all.  Images that are reserved or used by a container stay, even if the quota is
        missed.
        """
        quota = self._settings.quota_bytes if quota_bytes is None else quota_bytes
        if quota_bytes is None and not quota:
            return ()
        gone: list[str] = []
        kept: set[str] = {self._settings.base_image}
        async with self._evicting:
            while True:
                images = await engine_calls.list_images(self._engine)
                last_used = self._ledger.last_used()
                if quota and used_bytes(images, last_used) <= quota:
                    return tuple(gone)
                name = choose_image_to_evict(images, last_used, await engine_calls.images_in_use(self._engine), kept)
                if name is None:
                    return tuple(gone)
                if await self._evict(name):
                    gone.append(name)
                kept.add(name)

    async def _evict(self, name: str) -> bool:
        with self._ledger.lock_exclusively(name) as alone:
            if not alone or not await engine_calls.remove_image(self._engine, name):
                return False
            self._ledger.forget(name)
            self._evicted += 1
            return True

    def last_used(self) -> dict[str, float]:
        """Our names → Unix seconds."""
        return self._ledger.last_used()

    async def used_bytes(self) -> int:
        """Return the bytes of our images, as the quota counts them."""
        return used_bytes(await engine_calls.list_images(self._engine), self.last_used())

    def statistics(self) -> ImageStatistics:
        return ImageStatistics(self._built, self._pulled, self._waited, self._failed, self._refused, self._evicted)
