"""A version broadcast over gloo to all hosts at once, into the memory or disk where each keeps its copy.

Each version has a broadcast and a process group of its own, so that a host that died or came too late does not disturb
a later one.  If a broadcast fails, a host fetches what it missed block by block
(:mod:`actors.weight_transport.host_cache`).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, cast

from actors.weight_transport.transfer_plan import TransferPlan
from protocol.errors import InfraError
from protocol.processes.loopback import is_loopback
from protocol.processes.rendezvous import restrict_tcp_stores_to_address
from protocol.weights import WeightVersion, format_version

_GATHER_S = 5.0
"""A host that asks so much later than the first is not waited for."""
_PATIENCE_S = 60.0
"""What one chunk may take."""
_CHUNK_BYTES = 64 << 20


class HostBroadcastFailed(InfraError):
    """A host has to get the version by another way."""


@dataclass(frozen=True, slots=True)
class BroadcastMember:
    """One process's place in a round; rank 0 is the learner's host, which listens."""

    plan: TransferPlan
    address: str
    port: int
    rank: int
    world: int


@dataclass(slots=True)
class BroadcastBarrier:
    """The hosts that have asked for one version."""

    version: WeightVersion
    hosts: int
    """That are to come."""
    port: int
    _came: int = 0
    _over: bool = False
    _all_here: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for_all(self) -> int:
        """The rank of a host, once all are here.  Raises :class:`RoundFailed`."""
        label = format_version(self.version)
        if self._over or self._came == self.hosts:
            raise HostBroadcastFailed(f"version {label} has been broadcast, or given up, before this host asked for it")
        self._came += 1
        rank = self._came
        if self._came == self.hosts:
            self._all_here.set()
        try:
            async with asyncio.timeout(_GATHER_S):
                await self._all_here.wait()
        except TimeoutError:
            self._over = True
            raise HostBroadcastFailed(
                f"{self._came} of {self.hosts} hosts asked for version {label} within {_GATHER_S:g} s"
            ) from None
        return rank


def broadcast_files(seat: BroadcastMember) -> None:
    """Broadcast the plan's files.  Where that breaks off, those who receive say so."""
    with suppress(HostBroadcastFailed):
        _take_part(seat, Path(seat.plan.folder), "rb")


def receive_files(seat: BroadcastMember, folder: Path) -> None:
    """Write the plan's files into ``folder``.  Raises :class:`RoundFailed`."""
    _take_part(seat, folder, "wb")


def _take_part(seat: BroadcastMember, folder: Path, mode: str) -> None:
    import torch

    label = format_version(seat.plan.version)
    try:
        group = _group(seat)
        for planned in seat.plan.files:
            with (folder / planned.name).open(mode) as opened:
                file = cast("BinaryIO", opened)
                for start in range(0, planned.bytes, _CHUNK_BYTES):
                    size = min(_CHUNK_BYTES, planned.bytes - start)
                    chunk = bytearray(file.read(size).ljust(size) if seat.rank == 0 else size)
                    group.broadcast(torch.frombuffer(chunk, dtype=torch.uint8), 0).wait()
                    if seat.rank:
                        file.write(chunk)
    except (OSError, RuntimeError) as error:
        raise HostBroadcastFailed(f"the broadcast of version {label} broke off: {error}") from error


def _group(seat: BroadcastMember) -> Any:
    """Raises RuntimeError where not all come."""
    import torch

    restrict_tcp_stores_to_address()
    if is_loopback(seat.address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    untyped: Any = torch.distributed
    patience = timedelta(seconds=_PATIENCE_S)
    store = untyped.TCPStore(seat.address, seat.port, seat.world, seat.rank == 0, patience)
    return untyped.ProcessGroupGloo(store, seat.rank, seat.world, patience)
