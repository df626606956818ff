"""What a run has on each machine other than the driver's: who gives the driver what its actors wrote there, and sees to
it that nothing stays behind.

An actor that keeps nothing in mind, so Ray may restart it.  With it starts a guardian of the machine
(:mod:`launch.processes.process_reaper`), which ends what is left of the run there when the machine's Ray has gone, or
the run has.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from actors.runtime.remote import Remote
from launch.hosts.file_sync import ChangedFiles, FileSync, PieceRequest, list_changed_files, read_pieces
from launch.processes.process_reaper import ProcessReaper
from protocol.errors import InfraError
from protocol.events import EventLog
from sandbox.pool.sweep import sweep_run

_ANSWER_S = 20.0
_LAST_S = 20.0
"""For what has not been taken when the run ends."""
_POLL_S = 0.3
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgentSettings:
    folder: Path
    """Of this run, on the actor's machine; removed at the end."""
    run_id: str
    token: str = field(repr=False)
    """Of the run's processes on this machine."""
    has_sandboxes: bool
    """Agents work here, in containers."""
    settled_s: float
    """No episode takes so long."""


class NodeAgent:
    """See the module.  A plain class; an actor elsewhere."""

    def __init__(self, settings: NodeAgentSettings) -> None:
        self._settings = settings
        settings.folder.mkdir(parents=True, exist_ok=True)
        sweep = (sys.executable, "-m", "sandbox.pool.sweep", settings.run_id) if settings.has_sandboxes else ()
        self._process_reaper = ProcessReaper(settings.token, settings.folder, sweep, watched_pid=os.getppid())
        self._process_reaper.__enter__()

    async def list_changed_files(self, since: float) -> ChangedFiles:
        settings = self._settings
        return await asyncio.to_thread(list_changed_files, settings.folder, since, settled_s=settings.settled_s)

    async def read_pieces(self, wants: Sequence[PieceRequest]) -> list[bytes]:
        return await asyncio.to_thread(read_pieces, self._settings.folder, wants)

    async def sweep_containers(self, for_s: float) -> None:
        """Remove what workers that died left on this machine's Docker engine.  Raises LongshoreError."""
        if self._settings.has_sandboxes:
            await sweep_run(self._settings.run_id, for_s)

    async def close(self) -> None:
        """The run is over, and nobody writes here any more.  What Ray does not end, the guardian does."""
        self._process_reaper.__exit__(None, None, None)
        await asyncio.to_thread(shutil.rmtree, self._settings.folder, ignore_errors=True)


@dataclass(slots=True)
class LogSync:
    """The driver's side: what is written on one machine comes into the run's directory."""

    agent: Remote[NodeAgent]
    file_sync: FileSync
    events: EventLog
    _said: str = ""

    async def run(self) -> None:
        """Until cancelled.  A machine that cannot be reached is tried again; nothing of it is lost meanwhile."""
        while True:
            try:
                await self._copy_changes()
            except (InfraError, OSError, TimeoutError) as error:
                self._report(error)
                await asyncio.sleep(_RETRY_S)
            else:
                self._said = ""
                await asyncio.sleep(_POLL_S)

    async def finish(self) -> None:
        """What is left, once nothing is written any more; as far as it comes in time."""
        try:
            async with asyncio.timeout(_LAST_S):
                await self._copy_changes()
        except (InfraError, OSError, TimeoutError) as error:
            self._report(error)

    async def _copy_changes(self) -> None:
        """All that has changed since the last look."""
        mirror = self.file_sync
        async with asyncio.timeout(_ANSWER_S):
            mirror.record_changes(await self.agent.call(NodeAgent.list_changed_files, mirror.last_listed_at))
        while wants := mirror.next_requests():
            async with asyncio.timeout(_ANSWER_S):
                pieces = await self.agent.call(NodeAgent.read_pieces, wants)
            await asyncio.to_thread(mirror.append_pieces, wants, pieces)

    def _report(self, error: Exception) -> None:
        """Once for each reason."""
        why = str(error) or f"no answer within {_ANSWER_S:g} s"
        if why != self._said:
            self._said = why
            self.events.emit(
                "host.log_sync_failed", what=self.agent.name, why=why, behind_bytes=self.file_sync.behind_bytes
            )
