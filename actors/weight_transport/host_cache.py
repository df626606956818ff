"""One host's copies of published versions, which all engines of this host read.

A version is fetched once for all engines of the host, while they decode: the delta to the newest version that this host
and the learner's host both have is applied to that version, and the copy's digest is checked before the copy appears.
If the base is missing or differs, or a block is damaged, no engine sees it: the version is fetched whole, and an event
records why.

A version's copy is kept until every engine serves a later one.  A version for a single engine has a folder of its own,
and is kept until the next such version.
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

_CONCURRENT_BLOCKS = 4
"""Number of blocks that are fetched at once."""
_PINNED = "pinned"
_STALL_S = 60.0
"""Longest wait for one block or plan."""


class WeightCopyError(InfraError):
    """A version could not be copied to this host; the copies of other versions are unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWeightCacheSettings:
    name: str
    run_dir: Path
    node: str
    folder: Path
    """Parent folder of the copies on this host."""
    broadcast: bool = False
    """Whether a version is broadcast whole to all hosts at once; otherwise each host fetches a delta."""


@dataclass(frozen=True, slots=True)
class FetchedVersion:
    """Cost of one version's transfer."""

    base: WeightVersion
    bytes: int
    """Number of bytes that were sent."""
    whole_bytes: int
    """Number of bytes in the version's files."""
    ms: float


class HostWeightCache:
    """The cache of one host, a plain class that runs as an actor."""

    def __init__(self, settings: HostWeightCacheSettings, source: VersionSource) -> None:
        self._settings, self._source = settings, source
        self._events = EventLog(settings.run_dir, settings.name, settings.node)
        self._lock, self._lock_pinned = asyncio.Lock(), asyncio.Lock()
        settings.folder.mkdir(parents=True, exist_ok=True)

    async def fetch_version(
        self, manifest: WeightManifest, served: WeightVersion, *, refetch: bool = False, pinned: bool = False
    ) -> WeightManifest:
        """Fetch a version unless this host has it, and return the manifest of the copy.  Raises InfraError.

        Copies older than ``served`` are deleted, because no engine needs them.  ``refetch`` replaces an existing copy;
        ``pinned`` means that no other host fetches this version now."""
        if pinned:
            return await self._fetch_pinned(manifest, refetch=refetch)
        folder = version_folder(self._settings.folder, manifest.version)
        async with self._lock:
            if refetch:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            if not folder.exists():
                broadcast = self._settings.broadcast and not refetch
                fetched = await self._receive(manifest, folder) if broadcast else None
                held = list_versions(self._settings.folder)
                self._emit_copied(manifest, fetched or await self._fetch(manifest, folder, held))
            await asyncio.to_thread(delete_versions_before, self._settings.folder, served, keep=1)
        return replace(manifest, path=str(folder))

    async def _fetch_pinned(self, manifest: WeightManifest, *, refetch: bool) -> WeightManifest:
        """Fetch a version under a separate lock, so that no other engine waits for it."""
        parent = self._settings.folder / _PINNED
        folder = version_folder(parent, manifest.version)
        async with self._lock_pinned:
            if refetch:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            elif not folder.exists():
                await asyncio.to_thread(
                    _link, manifest, version_folder(self._settings.folder, manifest.version), folder
                )
            if not folder.exists():
                self._emit_copied(manifest, await self._fetch(manifest, folder, ()))
            await asyncio.to_thread(delete_versions_before, parent, manifest.version, keep=1)
        return replace(manifest, path=str(folder))

    async def _receive(self, manifest: WeightManifest, folder: Path) -> FetchedVersion | None:
        """Receive a version in a broadcast with all other hosts; if it fails, emit why and return None."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(_STALL_S):
                member = await self._source.join_broadcast(manifest)
            with build_folder(folder) as partial:
                await asyncio.to_thread(receive_files, member, partial)
                await asyncio.to_thread(weight_files.check_digest, replace(manifest, path=str(partial)))
        except (HostBroadcastFailed, InvalidWeights, OSError, TimeoutError) as error:
            self._emit_full_fetch(manifest, str(error) or f"the learner's host did not answer within {_STALL_S:g} s")
            return None
        return FetchedVersion(NO_VERSION, member.plan.bytes, member.plan.bytes, (time.monotonic() - begun) * 1000)

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
            why = f"the learner's host no longer has any of {', '.join(map(format_version, held))}"
        if why:
            self._emit_full_fetch(manifest, why)
        try:
            return await self._build_copy(manifest, plan, folder)
        except (DeltaError, InvalidWeights) as error:
            raise WeightCopyError(f"version {label} arrived damaged: {error}") from error

    async def _plan(self, manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
        try:
            async with asyncio.timeout(_STALL_S):
                return await self._source.plan_transfer(manifest, held)
        except TimeoutError:
            label = format_version(manifest.version)
            raise WeightCopyError(
                f"the learner's host did not answer about version {label} within {_STALL_S:g} s"
            ) from None

    async def _build_copy(self, manifest: WeightManifest, plan: TransferPlan, folder: Path) -> FetchedVersion:
        """Build the copy in ``folder`` block by block; if it fails, nothing remains of it.

        Raises DeltaError, InvalidWeights, WeightCopyError, and the source's errors."""
        begun, sent = time.monotonic(), list[int]()
        try:
            with build_folder(folder) as partial:
                for file in plan.files:
                    (partial / file.name).touch()
                blocks = iter([(file, index) for file in plan.files for index in range(file.blocks)])
                async with task_group() as group:
                    for _ in range(_CONCURRENT_BLOCKS):
                        group.create_task(self._fetch_blocks(plan, blocks, partial, sent))
                await asyncio.to_thread(weight_files.check_digest, replace(manifest, path=str(partial)))
        except OSError as error:
            raise WeightCopyError(f"version {format_version(manifest.version)} cannot be stored: {error}") from error
        return FetchedVersion(plan.base, sum(sent), plan.bytes, (time.monotonic() - begun) * 1000)

    async def _fetch_blocks(
        self, plan: TransferPlan, blocks: Iterator[tuple[PlannedFile, int]], folder: Path, sent: list[int]
    ) -> None:
        """Fetch blocks one after the other until ``blocks`` is exhausted."""
        for file, index in blocks:
            try:
                async with asyncio.timeout(_STALL_S):
                    block = await self._source.read_delta_block(plan, file, index)
            except TimeoutError:
                raise WeightCopyError(f"block {index} of {file.name} did not arrive within {_STALL_S:g} s") from None
            sent.append(len(block))
            await asyncio.to_thread(_apply, block, plan.base, folder / file.name, index)

    async def fetch_model(self, path: str, name: str = "model") -> str:
        """Copy the model folder ``path`` from the learner's host, unless the copy ``name`` is here, and return the
        copy's path.

        Raises InfraError."""
        folder = self._settings.folder / name
        manifest = WeightManifest(NO_VERSION, 0, NO_VERSION, path, "", 0, 0)
        async with self._lock:
            if not folder.exists():
                try:
                    await self._build_copy(manifest, await self._plan(manifest, ()), folder)
                except (DeltaError, InvalidWeights) as error:
                    raise WeightCopyError(f"the model in {path} arrived damaged: {error}") from error
        return str(folder)

    def _emit_full_fetch(self, manifest: WeightManifest, why: str) -> None:
        self._events.emit("weights.full_fetch", host=self._settings.node, version=manifest.version, why=why)

    def _emit_copied(self, manifest: WeightManifest, fetched: FetchedVersion) -> None:
        self._events.emit(
            "weights.copied",
            host=self._settings.node,
            version=manifest.version,
            base=fetched.base,
            bytes=fetched.bytes,
            share=round(fetched.bytes / max(1, fetched.whole_bytes), 5),
            ms=round(fetched.ms, 2),
        )


def _link(manifest: WeightManifest, existing: Path, folder: Path) -> None:
    """Hard-link the files of the copy in ``existing`` into ``folder``; do nothing if it is missing or being removed."""
    with suppress(OSError, InvalidWeights), build_folder(folder) as partial:
        shutil.copytree(existing, partial, copy_function=os.link, dirs_exist_ok=True)
        weight_files.check_digest(replace(manifest, path=str(partial)))


def _apply(block: bytes, base: WeightVersion, target: Path, index: int) -> None:
    """Apply a delta block of ``base`` to ``target``; both versions' folders have the same parent."""
    new = deltas.apply_delta(read_base_block(target.parent.parent, base, target.name, index), block)
    with target.open("rb+") as file:
        file.seek(index * BLOCK_BYTES)
        file.write(new)
