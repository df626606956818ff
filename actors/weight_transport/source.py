"""What the learner's host has for others: a published version whole, or what changed in it since one that they have.

Nothing is kept: a plan names the folders that it was made of, and a block is made of them when it is asked for.  Where
the version was removed meanwhile that is an error; where its base was, the block is for another base than is held.
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
    """A version is not, or no longer, on the learner's host."""


class VersionSource(Protocol):
    """The learner's host, as another one sees it."""

    async def plan_transfer(self, manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
        """From the newest of ``held`` that the learner's host still has.  Raises :class:`NoSuchWeights`."""
        ...

    async def read_delta_block(self, plan: TransferPlan, file: PlannedFile, index: int) -> bytes:
        """The ``index``-th block of ``file`` (:mod:`protocol.files.deltas`).  Raises :class:`NoSuchWeights`."""
        ...

    async def join_broadcast(self, manifest: WeightManifest) -> BroadcastMember:
        """A host's place in the broadcast of a version, once all have asked.  Raises :class:`NoSuchWeights`,
        :class:`~actors.weight_transport.host_broadcast.RoundFailed`."""
        ...


class WeightSource:
    """See the module.  A plain class; an actor elsewhere.

    ``hosts`` others take part in each broadcast (:meth:`expect`), which meets at this host's ``address``.
    """

    def __init__(self, hosts: int = 0, address: str = "127.0.0.1") -> None:
        self._hosts, self._address = hosts, address
        self._gathering: BroadcastBarrier | None = None

    async def set_host_count(self, hosts: int) -> None:
        """So many are left: no broadcast that begins later waits for more."""
        self._hosts = hosts

    async def plan_transfer(self, manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
        return await asyncio.to_thread(_plan, manifest, held)

    async def read_delta_block(self, plan: TransferPlan, file: PlannedFile, index: int) -> bytes:
        return await asyncio.to_thread(_block, plan, file, index)

    async def join_broadcast(self, manifest: WeightManifest) -> BroadcastMember:
        plan = await self.plan_transfer(manifest, ())
        gathering = self._gathering
        if gathering is None or gathering.version != manifest.version:
            gathering = self._gathering = BroadcastBarrier(manifest.version, self._hosts, find_free_port())
        rank = await gathering.wait_for_all()
        seat = BroadcastMember(plan, self._address, gathering.port, rank, 1 + gathering.hosts)
        if rank == gathering.hosts:
            asyncio.get_running_loop().run_in_executor(None, broadcast_files, replace(seat, rank=0))
        return seat


class RemoteWeightSource:
    """That actor, as a :class:`Source`."""

    def __init__(self, remote: Remote[WeightSource]) -> None:
        self._remote = remote

    async def plan_transfer(self, manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
        return await self._remote.call(WeightSource.plan_transfer, manifest, held)

    async def read_delta_block(self, plan: TransferPlan, file: PlannedFile, index: int) -> bytes:
        return await self._remote.call(WeightSource.read_delta_block, plan, file, index)

    async def join_broadcast(self, manifest: WeightManifest) -> BroadcastMember:
        return await self._remote.call(WeightSource.join_broadcast, manifest)


def _plan(manifest: WeightManifest, held: Sequence[WeightVersion]) -> TransferPlan:
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
        raise _gone(manifest.version, error) from error
    return TransferPlan(manifest.version, manifest.path, max(kept, default=NO_VERSION), files)


def _block(plan: TransferPlan, file: PlannedFile, index: int) -> bytes:
    folder = Path(plan.folder)
    try:
        new, base = read_block(folder / file.name, index), read_base_block(folder.parent, plan.base, file.name, index)
    except OSError as error:
        raise _gone(plan.version, error) from error
    return deltas.encode_delta(base, new, file.item_bytes)


def read_base_block(parent: Path, base: WeightVersion, name: str, index: int) -> bytes:
    """The block that stands in its place in version ``base``; nothing where there is no such file.  Raises OSError."""
    path = version_folder(parent, base) / name
    return read_block(path, index) if path.exists() else b""


def read_block(path: Path, index: int) -> bytes:
    """The bytes of one block; none behind the file's end.  Raises OSError."""
    with path.open("rb") as file:
        file.seek(index * BLOCK_BYTES)
        return file.read(BLOCK_BYTES)


def _gone(version: WeightVersion, error: OSError) -> VersionNotFound:
    return VersionNotFound(f"version {format_version(version)} cannot be read on the learner's host: {error}")
