"""The images of one engine: built or pulled once, reserved while in use, evicted when they exceed the quota.

``async with store.reserve(task) as image:`` yields a name from which containers can be created until the block ends.
If several callers need the same image, in this process or in others on this machine, one builds it and the others
wait. A failure is remembered for a while, so that a hundred sessions of a broken task do not build a hundred times.
Registries get the credentials of Docker's configuration.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from sandbox.docker.engine import DockerEngine
from sandbox.errors import BuildError, ImageError
from sandbox.images import engine_calls
from sandbox.images.archive_digests import check_archive
from sandbox.images.build_limits import BuildLimits
from sandbox.images.build_network import BuildNetworkOpener, open_default_network
from sandbox.images.engine_log import ReportProgress, ignore_progress
from sandbox.images.eviction import ImageEviction
from sandbox.images.image_names import TaskWithImage, image_for, is_reference, with_tag
from sandbox.images.ledger import ImageLedger
from sandbox.images.quota import used_bytes
from sandbox.images.registry_credentials import RegistryCredentials, docker_config_file
from sandbox.images.registry_hosts import NamedRegistries, RegistryGuard
from sandbox.tasks.container_files.named_images import find_named_images
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_network import NetworkMode

IMAGE_CONCURRENCY = 2
"""Maximum number of concurrent builds and pulls."""
IMAGE_QUOTA_GB = 50.0
"""Quota of our images on one engine, GiB."""
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ImageSettings:
    home: Path
    """Folder that all processes of the machine share."""
    base_image: str
    """Image of tasks that name none; never evicted."""
    quota_bytes: int = int(IMAGE_QUOTA_GB * (1 << 30))
    """Quota of our images, bytes; 0 for no bound."""
    concurrency: int = IMAGE_CONCURRENCY
    failure_memory_s: float = 60.0
    """Seconds before a failed image is tried again."""
    pull_timeout_s: float = 1800.0
    busy_s: float = 60.0
    """Maximum seconds to wait for another process that is evicting the image."""
    docker_config: Path = field(default_factory=docker_config_file)
    """Docker's configuration file, with the credentials of registries."""
    allow_registries: tuple[str, ...] = ()
    """Registries that need not be public, beside those of Docker's configuration and of the engine's."""


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
        self._engine, self.settings, self._ledger, self._now = engine, settings, ledger, now
        self._build_network = build_network or open_default_network
        self._credentials = RegistryCredentials(settings.docker_config)
        self._registries = RegistryGuard(self._registries_of_operator)
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
    async def reserve(self, task: TaskWithImage, report: ReportProgress = ignore_progress) -> AsyncGenerator[str]:
        """Yield the image of a task, a service or tests, present until the block ends; ``report`` gets the progress of
        a build or pull that this begins.

        Raises ImageError, DockerEngineError.
        """
        if self._is_base(task):
            yield self.settings.base_image
            return
        async with self.keep(task) as name:
            await self._ensure(name, task, report)
            yield name

    @asynccontextmanager
    async def keep(self, task: TaskWithImage) -> AsyncGenerator[str]:
        """Yield the name of an image that a container uses, not evicted until the block ends.  Raises ImageError."""
        if self._is_base(task):
            yield self.settings.base_image
            return
        name = image_for(task)
        await self._reserve_name(name)
        try:
            yield name
        finally:
            self._ledger.release(name)

    def _is_base(self, task: TaskWithImage) -> bool:
        return task.build is None and task.image in ("", self.settings.base_image)

    async def import_archive(self, archive: Path, name: str) -> None:
        """Import a tar of a root file system.  Raises ImageError, DockerEngineError."""
        await engine_calls.import_archive(self._engine, archive, with_tag(name), self.settings.pull_timeout_s)
        self._ledger.record(with_tag(name))

    async def save(self, names: Sequence[str], archive: Path) -> None:
        """Write images to an archive.  Raises ImageError, DockerEngineError, OSError."""
        await engine_calls.save_images(self._engine, names, archive, self.settings.pull_timeout_s)

    async def load(self, archive: Path) -> tuple[str, ...]:
        """Load the images of an archive and return their names.  Raises ImageError, DockerEngineError."""
        await asyncio.to_thread(check_archive, archive)
        names = await engine_calls.load_images(self._engine, archive, self.settings.pull_timeout_s)
        for name in names:
            self._ledger.record(name)
        return names

    async def _reserve_name(self, name: str) -> None:
        give_up = self._now() + self.settings.busy_s
        while not self._ledger.reserve(name):
            if self._now() > give_up:
                raise ImageError(f"the image {name} is still being evicted after {self.settings.busy_s:g} s: try again")
            await asyncio.sleep(_POLL_S)

    async def _ensure(self, name: str, task: TaskWithImage, report: ReportProgress) -> None:
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
                        await self._make(name, task, report)
            except ImageError as error:
                self._failed += 1
                self._remember(name, error)
                raise
        await self.prune()

    def _remember(self, name: str, error: ImageError) -> None:
        now = self._now()
        self._failures = {each: failure for each, failure in self._failures.items() if now < failure.until}
        self._failures[name] = _Failure(now + self.settings.failure_memory_s, error)

    @asynccontextmanager
    async def _build_lock(self, name: str) -> AsyncGenerator[None]:
        """Hold the machine-wide right to make this image until the block ends."""
        while True:
            with self._ledger.lock_exclusively(name, "build") as locked:
                if locked:
                    yield
                    return
            await asyncio.sleep(_POLL_S)

    async def _make(self, name: str, task: TaskWithImage, report: ReportProgress) -> None:
        if task.build is None:
            await self._refuse_registries([name])
            access = await asyncio.to_thread(self._credentials.access_for_pull, name)
            await engine_calls.pull_image(self._engine, name, self.settings.pull_timeout_s, access, report)
            self._pulled += 1
        else:
            await self._build(name, task.build, task, report)
            self._built += 1
        self._ledger.record(name)

    async def _refuse_registries(self, images: Iterable[str]) -> None:
        """Raise ImageError for the first image that the engine would pull from where only the operator may send it."""
        for image in sorted(images):
            try:
                await self._registries.check(image)
            except ImageError:
                if not is_reference(image) or not await engine_calls.find_image_id(self._engine, image):
                    raise

    async def _registries_of_operator(self, wanted: str) -> NamedRegistries:
        hosts, networks = await engine_calls.configured_registries(self._engine)
        of_file = await asyncio.to_thread(self._credentials.registries)
        of_helper = [wanted] if await asyncio.to_thread(self._credentials.has_login, wanted) else []
        return NamedRegistries({*self.settings.allow_registries, *hosts, *of_file, *of_helper}, networks)

    async def _build(self, name: str, context: ImageBuild, task: TaskWithImage, report: ReportProgress) -> None:
        network = task.network if isinstance(task, Task) else None
        timeout_s = task.build_timeout_s if isinstance(task, Task) else self.settings.pull_timeout_s
        mode = network.build if network else NetworkMode.FULL
        access = await asyncio.to_thread(self._credentials.access_for_build, context)
        async with self._build_network(mode, network.allowed_hosts if network else ()) as network_access:
            try:
                async with asyncio.timeout(timeout_s):
                    classic = await engine_calls.prepare_build(self._engine, context, name, network_access)
                    await self._refuse_registries(find_named_images(classic.build))
                    await engine_calls.build_image(
                        self._engine,
                        classic,
                        name,
                        network=network_access.network,
                        timeout_s=timeout_s,
                        limits=BuildLimits.for_task(task, await self._engine.machine()),
                        access=access,
                        report=report,
                    )
            except TimeoutError as error:
                raise BuildError(
                    f"the build of {name} took longer than {timeout_s:g} s: raise build_timeout"
                ) from error

    async def prune(self, quota_bytes: int | None = None) -> tuple[str, ...]:
        """Evict our images until they fit ``quota_bytes`` (default: the settings' quota). Returns the evicted names.

        A ``quota_bytes`` of 0 evicts all; see :meth:`ImageEviction.evict_to`.
        """
        quota = self.settings.quota_bytes if quota_bytes is None else quota_bytes
        if quota_bytes is None and not quota:
            return ()
        return await self._eviction.evict_to(quota)

    def last_used(self) -> dict[str, float]:
        """Return our image names → time of last use, Unix seconds."""
        return self._ledger.last_used()

    async def used_bytes(self) -> int:
        """Return the bytes of our images, as the quota counts them."""
        return used_bytes(await engine_calls.list_images(self._engine), self.last_used())

    async def exceeds_quota(self) -> bool:
        """Return whether our images exceed the quota because all that are left are reserved or in use."""
        quota = self.settings.quota_bytes
        return bool(quota) and await self.used_bytes() > quota

    async def free_disk_bytes(self) -> int | None:
        """Return the free bytes of the disk with the images; None if the engine is on another machine."""
        return await engine_calls.free_disk_bytes(self._engine)

    async def sizes(self) -> Mapping[str, int]:
        """Return the sizes of all images of the engine by name, in bytes with shared layers."""
        images = await engine_calls.list_images(self._engine)
        return {name: image.size_bytes for image in images for name in image.names}

    def statistics(self) -> ImageStatistics:
        return ImageStatistics(
            self._built, self._pulled, self._waited, self._failed, self._refused, self._eviction.evicted
        )
