"""The images of one engine: built or pulled once, reserved while in use, evicted when they exceed the quota.

``async with store.reserve(task) as image:`` yields a name from which containers can be created until the block ends.
If several callers need the same image, in this process or in others on this machine, one builds it and the others
wait. A failure is remembered for a while, so that a hundred sessions of a broken task do not build a hundred times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from sandbox.docker.engine import DockerEngine
from sandbox.errors import BuildError, ImageError
from sandbox.images import engine_calls
from sandbox.images.build_network import BuildNetworkOpener, open_default_network
from sandbox.images.eviction import ImageEviction
from sandbox.images.image_names import TaskWithImage, image_for, with_tag
from sandbox.images.ledger import ImageLedger
from sandbox.images.quota import used_bytes
from sandbox.tasks.task import ImageBuild, NetworkMode, Task

IMAGE_CONCURRENCY = 2
"""Maximum number of concurrent builds and pulls."""
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ImageSettings:
    home: Path
    """Folder that all processes of the machine share."""
    base_image: str
    """Image of tasks that name none; never evicted."""
    quota_bytes: int = 50 << 30
    """Quota of our images, bytes; 0 for no bound."""
    concurrency: int = IMAGE_CONCURRENCY
    failure_memory_s: float = 60.0
    """Seconds before a failed image is tried again."""
    pull_timeout_s: float = 1800.0
    busy_s: float = 60.0
    """Maximum seconds to wait for another process that is evicting the image."""


class ImageStatistics(NamedTuple):
    built: int
    pulled: int
    waited: int
    """Number of callers that waited for another caller's build or pull."""
    failed: int
    refused: int
    """Number of callers that got a remembered failure."""
    evicted: int


class _Failure(NamedTuple):
    until: float
    error: ImageError


async def open_ledger(engine: DockerEngine, home: Path) -> ImageLedger:
    """Open the ledger of this engine's images, which is a folder below ``home``.  Raises DockerEngineError."""
    return ImageLedger(home / "images" / (await engine_calls.find_engine_id(engine)).replace(":", ""))


class ImageStore:
    """Builds, pulls and reserves the images of one engine."""

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
        self._eviction = ImageEviction(engine, ledger, settings.base_image)
        self._built = self._pulled = self._waited = self._failed = self._refused = 0

    @classmethod
    async def open(
        cls, engine: DockerEngine, settings: ImageSettings, build_network: BuildNetworkOpener | None = None
    ) -> ImageStore:
        """Open the store of this engine. Raises DockerEngineError."""
        return cls(engine, settings, await open_ledger(engine, settings.home), build_network)

    @asynccontextmanager
    async def reserve(self, task: TaskWithImage) -> AsyncGenerator[str]:
        """Yield the image of a task, a service or tests, present until the block ends.

        Raises ImageError, DockerEngineError.
        """
        if self._is_base(task):
            yield self._settings.base_image
            return
        async with self.keep(task) as name:
            await self._ensure(name, task)
            yield name

    @asynccontextmanager
    async def keep(self, task: TaskWithImage) -> AsyncGenerator[str]:
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

    def _is_base(self, task: TaskWithImage) -> bool:
        return task.build is None and task.image in ("", self._settings.base_image)

    async def import_archive(self, archive: Path, name: str) -> None:
        """Import a tar of a root file system.  Raises ImageError, DockerEngineError."""
        await engine_calls.import_archive(self._engine, archive, with_tag(name), self._settings.pull_timeout_s)
        self._ledger.record(with_tag(name))

    async def save(self, names: Sequence[str], archive: Path) -> None:
        """Write images to an archive.  Raises ImageError, DockerEngineError, OSError."""
        await engine_calls.save_images(self._engine, names, archive, self._settings.pull_timeout_s)

    async def load(self, archive: Path) -> tuple[str, ...]:
        """Load the images of an archive and return their names.  Raises ImageError, DockerEngineError."""
        names = await engine_calls.load_images(self._engine, archive, self._settings.pull_timeout_s)
        for name in names:
            self._ledger.record(name)
        return names

    async def _reserve_name(self, name: str) -> None:
        give_up = self._now() + self._settings.busy_s
        while not self._ledger.reserve(name):
            if self._now() > give_up:
                raise ImageError(
                    f"the image {name} is still being evicted after {self._settings.busy_s:g} s: try again"
                )
            await asyncio.sleep(_POLL_S)

    async def _ensure(self, name: str, task: TaskWithImage) -> None:
        making = self._making.setdefault(name, asyncio.Lock())  # collected once nobody holds or awaits it
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
            with self._ledger.lock_exclusively(name, "build") as locked:
                if locked:
                    yield
                    return
            await asyncio.sleep(_POLL_S)

    async def _make(self, name: str, task: TaskWithImage) -> None:
        if task.build is None:
            await engine_calls.pull_image(self._engine, name, self._settings.pull_timeout_s)
            self._pulled += 1
        else:
            await self._build(name, task.build, task)
            self._built += 1
        self._ledger.record(name)

    async def _build(self, name: str, context: ImageBuild, task: TaskWithImage) -> None:
        network = task.network if isinstance(task, Task) else None
        timeout_s = task.build_timeout_s if isinstance(task, Task) else self._settings.pull_timeout_s
        mode = network.build if network else NetworkMode.FULL
        async with self._build_network(mode, network.allowed_hosts if network else ()) as network_access:
            try:
                async with asyncio.timeout(timeout_s):
                    await engine_calls.build_image(
                        self._engine,
                        context,
                        name,
                        network=network_access.network,
                        args=network_access.args,
                        timeout_s=timeout_s,
                    )
            except TimeoutError as error:
                raise BuildError(
                    f"the build of {name} took longer than {timeout_s:g} s: raise build_timeout"
                ) from error

    async def prune(self, quota_bytes: int | None = None) -> tuple[str, ...]:
        """Evict our images until they fit ``quota_bytes`` (default: the settings' quota). Returns the evicted names.

        A ``quota_bytes`` of 0 evicts all; see :meth:`ImageEviction.evict_to`.
        """
        quota = self._settings.quota_bytes if quota_bytes is None else quota_bytes
        if quota_bytes is None and not quota:
            return ()
        return await self._eviction.evict_to(quota)

    def last_used(self) -> dict[str, float]:
        """Return our image names → time of last use, Unix seconds."""
        return self._ledger.last_used()

    async def used_bytes(self) -> int:
        """Return the bytes of our images, as the quota counts them."""
        return used_bytes(await engine_calls.list_images(self._engine), self.last_used())

    def statistics(self) -> ImageStatistics:
        return ImageStatistics(
            self._built, self._pulled, self._waited, self._failed, self._refused, self._eviction.evicted
        )
