"""Broadcast of a version's files over gloo to all hosts at once, into each host's copy in memory or on disk.

Each version has its own broadcast and process group, so that a host that died or was late does not disturb a later
broadcast.  If a broadcast fails, the host fetches the version block by block
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
from protocol.processes.rendezvous import guard_process_groups
from protocol.weights import WeightVersion, format_version

GATHER_S = 5.0
"""Seconds that the first host waits for the others to join."""
_CHUNK_TIMEOUT_S = 60.0
"""Longest broadcast of one chunk."""
CHUNK_BYTES = 64 << 20


class HostBroadcastFailed(InfraError):
    """The broadcast failed for this host, which must fetch the version in another way."""


@dataclass(frozen=True, slots=True)
class BroadcastMember:
    """One process's rank and address in a broadcast; rank 0 is the learner's host, which listens."""

    plan: TransferPlan
    address: str
    port: int
    rank: int
    world: int


@dataclass(slots=True)
class BroadcastBarrier:
    """Collects the hosts that join the broadcast of one version."""

    version: WeightVersion
    hosts: int
    """Number of hosts that must join."""
    port: int
    _joined: int = 0
    _closed: bool = False
    _all_joined: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for_all(self) -> int:
        """Wait until all hosts have joined and return the caller's rank.  Raises :class:`HostBroadcastFailed`."""
        label = format_version(self.version)
        if self._closed or self._joined == self.hosts:
            raise HostBroadcastFailed(f"the broadcast of version {label} ended before this host joined it")
        self._joined += 1
        rank = self._joined
        if self._joined == self.hosts:
            self._all_joined.set()
        try:
            async with asyncio.timeout(GATHER_S):
                await self._all_joined.wait()
        except TimeoutError:
            self._closed = True
            raise HostBroadcastFailed(
                f"{self._joined} of {self.hosts} hosts joined the broadcast of version {label} within {GATHER_S:g} s"
            ) from None
        return rank


def broadcast_files(member: BroadcastMember) -> None:
    """Broadcast the plan's files.  A failure is reported by the receivers, so it is not raised here."""
    with suppress(HostBroadcastFailed):
        _transfer_files(member, Path(member.plan.folder), "rb")


def receive_files(member: BroadcastMember, folder: Path) -> None:
    """Write the plan's files into ``folder``.  Raises :class:`HostBroadcastFailed`."""
    _transfer_files(member, folder, "wb")


def _transfer_files(member: BroadcastMember, folder: Path, mode: str) -> None:
    import torch

    label = format_version(member.plan.version)
    try:
        group = join_group(member)
        for planned in member.plan.files:
            with (folder / planned.name).open(mode) as opened:
                file = cast("BinaryIO", opened)
                for start in range(0, planned.bytes, CHUNK_BYTES):
                    size = min(CHUNK_BYTES, planned.bytes - start)
                    chunk = bytearray(file.read(size).ljust(size) if member.rank == 0 else size)
                    group.broadcast(torch.frombuffer(chunk, dtype=torch.uint8), 0).wait()
                    if member.rank:
                        file.write(chunk)
    except (OSError, RuntimeError) as error:
        raise HostBroadcastFailed(f"the broadcast of version {label} failed: {error}") from error


def join_group(member: BroadcastMember) -> Any:
    """Return the process group.  Raises RuntimeError if not all members join."""
    import torch

    guard_process_groups()
    if is_loopback(member.address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    untyped: Any = torch.distributed
    timeout = timedelta(seconds=_CHUNK_TIMEOUT_S)
    store = untyped.TCPStore(member.address, member.port, member.world, member.rank == 0, timeout)
    return untyped.ProcessGroupGloo(store, member.rank, member.world, timeout)
