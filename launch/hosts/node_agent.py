"""The agent of a run on each machine other than the driver's: returns the files that actors write there and cleans up.

The agent is stateless, so Ray may restart it.  It starts a process reaper (:mod:`launch.processes.process_reaper`),
which ends the run's processes there when the machine's Ray or the run has ended.
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
from protocol.files.filesystem import UntrustedFolderError, make_private_folder
from sandbox.pool.run_orphans import remove_run_orphans

_ANSWER_S = 20.0
_FINAL_SYNC_S = 20.0
"""Longest wait for the last files to be copied when the run ends."""
_POLL_S = 0.3
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgentSettings:
    folder: Path
    """Folder of this run on the agent's machine; removed at the end."""
    run_id: str
    token: str = field(repr=False)
    """Token that marks the run's processes on this machine."""
    has_sandboxes: bool
    """Whether workers run here, with containers."""
    settled_s: float
    """Seconds that no episode exceeds."""


class ScratchFolderMaker:
    """Makes the run's folder on another machine, as an actor that ends with its answer, before any actor that writes
    there, its log included, is started."""

    def make(self, folder: Path) -> None:
        """Make the folder.  Raises InfraError."""
        try:
            make_private_folder(folder)
        except (OSError, UntrustedFolderError) as error:
            raise InfraError(
                f"{error}: no run can write to {folder} there; remove what is in its place, or choose a folder of your "
                "own (--set cluster.scratch_dir=FOLDER)"
            ) from error


class NodeAgent:
    def __init__(self, settings: NodeAgentSettings) -> None:
        self._settings = settings
        make_private_folder(settings.folder)
        cleanup = (sys.executable, "-m", "sandbox.host", "clean", settings.run_id) if settings.has_sandboxes else ()
        self._process_reaper = ProcessReaper(settings.token, settings.folder, cleanup, watched_pid=os.getppid())
        self._process_reaper.__enter__()

    async def list_changed_files(self, since: float) -> ChangedFiles:
        settings = self._settings
        return await asyncio.to_thread(list_changed_files, settings.folder, since, settled_s=settings.settled_s)

    async def read_pieces(self, requests: Sequence[PieceRequest]) -> list[bytes]:
        return await asyncio.to_thread(read_pieces, self._settings.folder, requests)

    async def remove_orphaned_containers(self, for_s: float) -> None:
        """Remove what dead workers left on this machine's Docker engine.  Raises LongshoreError."""
        if self._settings.has_sandboxes:
            await remove_run_orphans(self._settings.run_id, for_s)

    async def close(self) -> None:
        """Clean up after the run, when nothing writes here any more.  The process reaper ends what Ray does not."""
        self._process_reaper.__exit__(None, None, None)
        await asyncio.to_thread(shutil.rmtree, self._settings.folder, ignore_errors=True)


@dataclass(slots=True)
class LogSync:
    """The driver's side: copies the files written on one machine to the run's directory."""

    agent: Remote[NodeAgent]
    file_sync: FileSync
    events: EventLog
    _reported: str = ""

    async def run(self) -> None:
        """Sync until cancelled.  An unreachable machine is tried again without losing data."""
        while True:
            try:
                await self._copy_changes()
            except (InfraError, OSError, TimeoutError) as error:
                self._report(error)
                await asyncio.sleep(_RETRY_S)
            else:
                self._reported = ""
                await asyncio.sleep(_POLL_S)

    async def finish(self) -> None:
        """Copy the rest once nothing is written any more, as far as time allows."""
        try:
            async with asyncio.timeout(_FINAL_SYNC_S):
                await self._copy_changes()
        except (InfraError, OSError, TimeoutError) as error:
            self._report(error)

    async def _copy_changes(self) -> None:
        """Copy all that has changed since the last listing."""
        sync = self.file_sync
        async with asyncio.timeout(_ANSWER_S):
            sync.record_changes(await self.agent.call(NodeAgent.list_changed_files, sync.last_listed_at))
        while requests := sync.next_requests():
            async with asyncio.timeout(_ANSWER_S):
                pieces = await self.agent.call(NodeAgent.read_pieces, requests)
            await asyncio.to_thread(sync.append_pieces, requests, pieces)

    def _report(self, error: Exception) -> None:
        """Emit an event, once for each reason in a row."""
        why = str(error) or f"no answer within {_ANSWER_S:g} s"
        if why != self._reported:
            self._reported = why
            self.events.emit(
                "host.log_sync_failed", what=self.agent.name, why=why, behind_bytes=self.file_sync.behind_bytes
            )
