"""One host's copies of published versions, which all engines of this host read.

A version is fetched once, whoever of the host's engines asks first, while they decode: what changed since the newest
version that the learner's host and this one both have is applied to that, and the copy has the manifest's digest when
it appears.  Everything is found before an engine is told: a base that is missing or is not what it was, a block that
is damaged.  Then the version is fetched whole, and an event says why.

A version's copy lives until every engine serves a later one.  What one engine is given alone has a folder beside the
others, and lives until another version is given so.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from actors.engines.messages import InvalidWeights
from actors.engines.weights import weight_files
from actors.weight_transport.host_broadcast import HostBroadcastFailed, receive_files
from actors.weight_transport.source import VersionSource, read_base_block
from actors.weight_transport.transfer_plan import BLOCK_BYTES, PlannedFile, TransferPlan
from actors.weight_transport.version_folders import delete_versions_before, list_versions, version_folder
from protocol.errors import InfraError
from protocol.events import EventLog
from protocol.files import deltas
from protocol.files.deltas import DeltaError
from protocol.files.filesystem import build_folder
from protocol.processes.task_groups import task_group
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion, format_version

_AT_ONCE = 4
"""Blocks on their way."""
_ALONE = "alone"
_STALL_S = 60.0
"""A block that takes longer does not come."""


class WeightCopyError(InfraError):
    """A version did not come to this host; the copies of others are as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWeightCacheSettings:
    name: str
    run_dir: Path
    node: str
    folder: Path
    """Of the copies, on this host."""
    broadcast: bool = False
    """Whether a version comes to all hosts at once, whole; otherwise to each as what changed."""


@dataclass(frozen=True, slots=True)
class FetchedVersion:
    """A version that has come, and what that took."""

    base: WeightVersion
    bytes: int
    """That were sent."""
    whole_bytes: int
    """Of the version's files."""
    ms: float


class HostWeightCache:
    """See the module.  A plain class; an actor elsewhere."""

    def __init__(self, settings: HostWeightCacheSettings, source: VersionSource) -> None:
        self._settings, self._source = settings, source
        self._events = EventLog(settings.run_dir, settings.name, settings.node)
        self._lock, self._lock_alone = asyncio.Lock(), asyncio.Lock()
        settings.folder.mkdir(parents=True, exist_ok=True)

    async def fetch_version(
        self, manifest: WeightManifest, served: WeightVersion, *, anew: bool = False, alone: bool = False
    ) -> WeightManifest:
        """The manifest of this host's copy, which is there.  No engine needs what is older than ``served``.  With
        ``anew`` a copy that is there is not trusted; ``alone``: no other host fetches it now.  Raises InfraError."""
        if alone:
            return await self._fetch_alone(manifest, anew=anew)
        folder = version_folder(self._settings.folder, manifest.version)
        async with self._lock:
            if anew:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            if not folder.exists():
                broadcast = self._settings.broadcast and not anew
                fetched = await self._receive(manifest, folder) if broadcast else None
                held = list_versions(self._settings.folder)
                self._tell(manifest, fetched or await self._fetch(manifest, folder, held))
            await asyncio.to_thread(delete_versions_before, self._settings.folder, served, keep=1)
        return replace(manifest, path=str(folder))

    async def _fetch_alone(self, manifest: WeightManifest, *, anew: bool) -> WeightManifest:
        """Under a lock of its own, so that no other engine waits for it."""
        parent = self._settings.folder / _ALONE
        folder = version_folder(parent, manifest.version)
        async with self._lock_alone:
            if anew:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            elif not folder.exists():
                await asyncio.to_thread(
                    _link, manifest, version_folder(self._settings.folder, manifest.version), folder
                )
            if not folder.exists():
                self._tell(manifest, await self._fetch(manifest, folder, ()))
            await asyncio.to_thread(delete_versions_before, parent, manifest.version, keep=1)
        return replace(manifest, path=str(folder))

    async def _receive(self, manifest: WeightManifest, folder: Path) -> FetchedVersion | None:
        """With all other hosts; None where that failed, and an event says why."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(_STALL_S):
                seat = await self._source.join_broadcast(manifest)
            with build_folder(folder) as partial:
                await asyncio.to_thread(receive_files, seat, partial)
                await asyncio.to_thread(weight_files.check_digest, replace(manifest, path=str(partial)))
        except (HostBroadcastFailed, InvalidWeights, OSError, TimeoutError) as error:
            self._resync(manifest, str(error) or f"the learner's host was silent for {_STALL_S:g} s")
            return None
        return FetchedVersion(NO_VERSION, seat.plan.bytes, seat.plan.bytes, (time.monotonic() - begun) * 1000)

    async def _fetch(self, manifest: WeightManifest, folder: Path, held: Sequence[WeightVersion]) -> FetchedVersion:
        label, why = format_version(manifest.version), ""
        plan = await self._plan(manifest, held)
        if plan.base != NO_VERSION:
            try:
                return await self._build_copy(manifest, plan, folder)
            except (DeltaError, InvalidWeights) as error:
                why = str(error)
            plan = await self._plan(manifest, ())
        elif held:
            why = f"the learner's host has none of {', '.join(map(format_version, held))} any more"
        if why:
            self._resync(manifest, why)
        try:
            return await self._build_copy(manifest, plan, folder)
        except (DeltaError, InvalidWeights) as error:
            raise WeightCopyError(f"version {label} did not come whole: {error}") from error

    async def _plan(self, manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
        try:
            async with asyncio.timeout(_STALL_S):
                return await self._source.plan_transfer(manifest, held)
        except TimeoutError:
            label = format_version(manifest.version)
            raise WeightCopyError(f"the learner's host said nothing of version {label} within {_STALL_S:g} s") from None

    async def _build_copy(self, manifest: WeightManifest, plan: TransferPlan, folder: Path) -> FetchedVersion:
        """Raises DeltaError, BadWeights, CopyError, and what the source raises; then nothing is left of it."""
        begun, sent = time.monotonic(), list[int]()
        try:
            with build_folder(folder) as partial:
                for file in plan.files:
                    (partial / file.name).touch()
                blocks = iter([(file, index) for file in plan.files for index in range(file.blocks)])
                async with task_group() as group:
                    for _ in range(_AT_ONCE):
                        group.create_task(self._fetch_blocks(plan, blocks, partial, sent))
                await asyncio.to_thread(weight_files.check_digest, replace(manifest, path=str(partial)))
        except OSError as error:
            raise WeightCopyError(f"version {format_version(manifest.version)} cannot be kept here: {error}") from error
        return FetchedVersion(plan.base, sum(sent), plan.bytes, (time.monotonic() - begun) * 1000)

    async def _fetch_blocks(
        self, plan: TransferPlan, blocks: Iterator[tuple[PlannedFile, int]], folder: Path, sent: list[int]
    ) -> None:
        """Blocks, one after the other, until none is left."""
        for file, index in blocks:
            try:
                async with asyncio.timeout(_STALL_S):
                    block = await self._source.read_delta_block(plan, file, index)
            except TimeoutError:
                raise WeightCopyError(f"block {index} of {file.name} did not come within {_STALL_S:g} s") from None
            sent.append(len(block))
            await asyncio.to_thread(_apply, block, plan.base, folder / file.name, index)

    async def fetch_model(self, path: str) -> str:
        """The run's model folder as this host has it: copied from the learner's, unless it is here.  Raises
        InfraError."""
        folder = self._settings.folder / "model"
        manifest = WeightManifest(NO_VERSION, 0, NO_VERSION, path, "", 0, 0)
        async with self._lock:
            if not folder.exists():
                try:
                    await self._build_copy(manifest, await self._plan(manifest, ()), folder)
                except (DeltaError, InvalidWeights) as error:
                    raise WeightCopyError(f"the model in {path} did not come whole: {error}") from error
        return str(folder)

    def _resync(self, manifest: WeightManifest, why: str) -> None:
        self._events.emit("weights.full_fetch", host=self._settings.node, version=manifest.version, why=why)

    def _tell(self, manifest: WeightManifest, fetched: FetchedVersion) -> None:
        self._events.emit(
            "weights.copied",
            host=self._settings.node,
            version=manifest.version,
            base=fetched.base,
            bytes=fetched.bytes,
            share=round(fetched.bytes / max(1, fetched.whole_bytes), 5),
            ms=round(fetched.ms, 2),
        )


def _link(manifest: WeightManifest, there: Path, folder: Path) -> None:
    """Make ``folder`` of the files of a copy that is there; of one that is not, or is being removed, nothing."""
    with suppress(OSError, InvalidWeights), build_folder(folder) as partial:
        shutil.copytree(there, partial, copy_function=os.link, dirs_exist_ok=True)
        weight_files.check_digest(replace(manifest, path=str(partial)))


def _apply(block: bytes, base: WeightVersion, target: Path, index: int) -> None:
    """Write the block into ``target``, whose folder stands beside that of ``base``."""
    new = deltas.apply_delta(read_base_block(target.parent.parent, base, target.name, index), block)
    with target.open("rb+") as file:
        file.seek(index * BLOCK_BYTES)
        file.write(new)
