"""The journal and the export for readers, used by a single thread in the order of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from protocol import codec
from protocol.errors import UserError
from protocol.journal import AppendOutcome, ClosedGroup, Journal, JournalSettings, TrajectoryArrival
from protocol.run_directory.trajectory_export import TRAJECTORIES_FOLDER, TrajectoryExporter
from protocol.stream import ReceivedTrajectory

P = ParamSpec("P")
R = TypeVar("R")


class StoredBatch(NamedTuple):
    """Outcome of appending a batch of trajectories."""

    outcomes: Sequence[AppendOutcome]
    closed: Sequence[ClosedGroup]
    """Groups that closed with it."""


class JournalThread:
    """An open journal and its exporter."""

    def __init__(self, thread: ThreadPoolExecutor, journal: Journal, exporter: TrajectoryExporter) -> None:
        self._thread, self.journal, self.exporter = thread, journal, exporter

    @staticmethod
    async def open(run_dir: Path, settings: JournalSettings) -> JournalThread:
        """Open the journal of ``run_dir``, and export stored trajectories that are not exported yet.

        Raises UserError for a network file system or an older copy of the journal, JournalError for another run's."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="journal")

        def open_both() -> tuple[Journal, TrajectoryExporter]:
            with ExitStack() as undo:
                journal = undo.enter_context(closing(Journal(run_dir / "buffer" / "journal.sqlite", settings)))
                exporter = _open_exporter(run_dir, journal)
                undo.pop_all()
                return journal, exporter

        with ExitStack() as undo:
            undo.callback(thread.shutdown, wait=False)
            journal, exporter = await asyncio.get_running_loop().run_in_executor(thread, open_both)
            undo.pop_all()
        return JournalThread(thread, journal, exporter)

    async def call(self, method: Callable[Concatenate[Journal, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run ``method`` of the journal in its thread."""
        return await self.run(method, self.journal, *args, **kwargs)

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run ``work`` in the journal's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *args, **kwargs))

    async def store(self, items: Sequence[ReceivedTrajectory]) -> StoredBatch:
        """Append and export a batch; it is durable on return.  Raises DiskFullError."""
        return await self.run(self._store, items, [item.to_arrival() for item in items])

    def _store(self, items: Sequence[ReceivedTrajectory], arrivals: Sequence[TrajectoryArrival]) -> StoredBatch:
        outcomes, closed = self.journal.append_batch(arrivals)
        for item, arrival, outcome in zip(items, arrivals, outcomes, strict=True):
            if outcome is AppendOutcome.APPENDED:
                self.exporter.export_trajectory(item.summary, arrival.blob)
        return StoredBatch(outcomes, closed)

    async def close(self) -> None:
        """Close the journal and end the thread."""
        await self.run(self.journal.close)
        self._thread.shutdown()


def _open_exporter(run_dir: Path, journal: Journal) -> TrajectoryExporter:
    exporter = TrajectoryExporter(run_dir)
    _require_newest(run_dir, journal, exporter.read_newest_id())
    stored = dict(journal.iterate_payloads())
    for name in exporter.find_unexported(stored):
        blob = stored[name]()
        try:
            summary = codec.inspect_blob(blob)
        except codec.CodecError:  # leasing it raises an error with the remedy
            exporter.failures += 1
        else:
            exporter.export_trajectory(summary, blob)
    return exporter


def _require_newest(run_dir: Path, journal: Journal, exported: str | None) -> None:
    """Raise UserError if the journal is an older copy.

    Acknowledged trajectories would be lost without notice, and their names given to others."""
    if exported is not None and journal.is_older_copy(exported):
        path = journal.path
        raise UserError(
            f"{path} is older than its export: it lacks {exported}, which was acknowledged. "
            f"Put the right one back, with its {path.name}-wal, or, to continue without the missing trajectories, move "
            f"{run_dir / TRAJECTORIES_FOLDER} away"
        )
