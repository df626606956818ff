"""The learner's host as the source of published versions for other hosts: whole, or as a delta to a version they have.

The source keeps no state: a plan names its folders, and each block is computed from them on request.  If the version
was removed meanwhile, that is an error; if its base was removed, the delta does not fit the host's base.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from actors.engines.weights import weight_files
from actors.weight_transport.host_broadcast import BroadcastBarrier, BroadcastMember, broadcast_files
from actors.weight_transport.transfer_plan import BLOCK_BYTES, PlannedFile, TransferPlan
from actors.weight_transport.version_folders import version_folder
from protocol.errors import InfraError
from protocol.files import deltas
from protocol.processes.loopback import find_free_port
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion, format_version

if TYPE_CHECKING:  # it loads Ray
    from actors.runtime.remote import Remote

_TENSORS = ".safetensors"


class VersionNotFound(InfraError):
    """The learner's host does not have the version, or has removed it."""


class VersionSource(Protocol):
    """The learner's host as other hosts see it."""

    async def plan_transfer(self, manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
        """Plan the transfer as a delta to the newest of ``held`` that the learner's host still has.

        Raises :class:`VersionNotFound`."""
        ...

    async def read_delta_block(self, plan: TransferPlan, file: PlannedFile, index: int) -> bytes:
        """Return the delta of block ``index`` of ``file`` (:mod:`protocol.files.deltas`).

        Raises :class:`VersionNotFound`."""
        ...

    async def join_broadcast(self, manifest: WeightManifest) -> BroadcastMember:
        """Join the broadcast of a version and return the caller's membership once all hosts have joined.

        Raises :class:`VersionNotFound` and :class:`~actors.weight_transport.host_broadcast.HostBroadcastFailed`."""
        ...


class WeightSource:
    """The source on the learner's host, a plain class that runs as an actor.

    Each broadcast waits for ``hosts`` other hosts (see :meth:`set_host_count`) and rendezvous at this host's
    ``address``.
    """

    def __init__(self, hosts: int = 0, address: str = "127.0.0.1") -> None:
        self._hosts, self._address = hosts, address
        self._barrier: BroadcastBarrier | None = None

    async def set_host_count(self, hosts: int) -> None:
        """Set the number of hosts that later broadcasts wait for."""
        self._hosts = hosts

    async def plan_transfer(self, manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
        return await asyncio.to_thread(_make_plan, manifest, held)

    async def read_delta_block(self, plan: TransferPlan, file: PlannedFile, index: int) -> bytes:
        return await asyncio.to_thread(_encode_block, plan, file, index)

    async def join_broadcast(self, manifest: WeightManifest) -> BroadcastMember:
        plan = await self.plan_transfer(manifest, ())
        barrier = self._barrier
        if barrier is None or barrier.version != manifest.version:
            barrier = self._barrier = BroadcastBarrier(manifest.version, self._hosts, find_free_port())
        rank = await barrier.wait_for_all()
        member = BroadcastMember(plan, self._address, barrier.port, rank, 1 + barrier.hosts)
        if rank == barrier.hosts:
            asyncio.get_running_loop().run_in_executor(None, broadcast_files, replace(member, rank=0))
        return member


class RemoteWeightSource:
    """The source's actor as a :class:`VersionSource`."""

    def __init__(self, remote: Remote[WeightSource]) -> None:
        self._remote = remote

    async def plan_transfer(self, manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
        return await self._remote.call(WeightSource.plan_transfer, manifest, held)

    async def read_delta_block(self, plan: TransferPlan, file: PlannedFile, index: int) -> bytes:
        return await self._remote.call(WeightSource.read_delta_block, plan, file, index)

    async def join_broadcast(self, manifest: WeightManifest) -> BroadcastMember:
        return await self._remote.call(WeightSource.join_broadcast, manifest)


def _make_plan(manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
    folder = Path(manifest.path)
    kept = [version for version in held if version_folder(folder.parent, version).is_dir()]
    try:
        files = tuple(
            PlannedFile(
                path.name,
                path.stat().st_size,
                weight_files.read_item_bytes(path) if path.suffix == _TENSORS else 1,
            )
            for path in sorted(folder.iterdir())
            if path.is_file()
        )
    except OSError as error:
        raise _not_found_error(manifest.version, error) from error
    return TransferPlan(manifest.version, manifest.path, max(kept, default=NO_VERSION), files)


def _encode_block(plan: TransferPlan, file: PlannedFile, index: int) -> bytes:
    folder = Path(plan.folder)
    try:
        new, base = read_block(folder / file.name, index), read_base_block(folder.parent, plan.base, file.name, index)
    except OSError as error:
        raise _not_found_error(plan.version, error) from error
    return deltas.encode_delta(base, new, file.item_bytes)


def read_base_block(parent: Path, base: WeightVersion, name: str, index: int) -> bytes:
    """Return block ``index`` of the file ``name`` in version ``base``; empty if there is no such file.

    Raises OSError."""
    path = version_folder(parent, base) / name
    return read_block(path, index) if path.exists() else b""


def read_block(path: Path, index: int) -> bytes:
    """Return the bytes of one block; empty beyond the file's end.  Raises OSError."""
    with path.open("rb") as file:
        file.seek(index * BLOCK_BYTES)
        return file.read(BLOCK_BYTES)


def _not_found_error(version: WeightVersion, error: OSError) -> VersionNotFound:
    return VersionNotFound(f"version {format_version(version)} cannot be read on the learner's host: {error}")
