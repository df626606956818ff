"""The buffer's actor: receives trajectories from workers, keeps them durable, leases whole groups to the learner.

It joins the receiver (:mod:`protocol.stream`), the journal (:mod:`protocol.journal`) and the export for readers
(:mod:`protocol.run_directory.trajectory_export`).  Invariants:

- A worker's ``send`` returns only after the journal's transaction.  The buffer holds nothing that the journal lacks, so
  its process may be killed at any time: made again with the same settings, its first call opens everything again.
- All work on the journal runs in one thread, in the order of the calls.
- Every method may be called again after its answer was lost.

The scheduler waits here for groups to close (``wait_progress``), the training loop for whole batches (``lease_batch``);
the buffer waits for nobody.  It ends with :meth:`TrajectoryBuffer.stop` or with its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from actors.buffer.buffer_events import BufferEvents
from actors.buffer.group_progress import GroupProgress, read_group_progress
from actors.buffer.journal_thread import JournalThread
from actors.buffer.known_versions import KnownVersions
from actors.buffer.receiver_service import ReceiverService
from actors.buffer.settings import BufferSpec
from actors.buffer.task_records import TaskRecord, record_outcome
from actors.runtime.stoppable_task import StoppableTask
from protocol.errors import InfraError
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import (
    AppendOutcome,
    BatchLease,
    ClosedGroup,
    DiskFullError,
    Journal,
    JournalAccounting,
    JournalOpenGroup,
    JournalSettings,
    JournalStatistics,
    wal_bytes,
)
from protocol.stream import DEFAULT_BATCH_BYTES, ReceivedTrajectory, ReceiverStatistics, TrajectoryReceiver
from protocol.trajectory import DropReason, GroupId

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class BufferStatistics:
    """The counts of the buffer's parts."""

    endpoint: str
    journal: JournalStatistics
    receiver: ReceiverStatistics
    wants_checkpoint: bool
    """True if more than half the budget is trained and not yet in a checkpoint."""
    export_failures: int
    dropped_tokens: dict[str, dict[str, int]]
    """See :meth:`Journal.dropped_tokens`."""


class TrajectoryBuffer:
    """Cheap to construct; the first call of any method opens journal and socket."""

    def __init__(self, spec: BufferSpec) -> None:
        self._spec = spec
        self._opening = asyncio.Lock()
        self._changed = asyncio.Condition()
        """Notified when a group closes or bytes are freed."""
        self._newest_closing = self._freed = 0
        self._open = self._stopped = False
        self._journal: JournalThread
        self._service: ReceiverService
        self._events: BufferEvents
        self._loop_lag: StoppableTask

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Open the journal and the socket, and return the endpoint that senders connect to.

        Raises UserError for a run directory on a network file system and for a journal that is an older copy,
        JournalError for another run's journal, InfraError if the port cannot be bound."""
        await self._require_open()
        return self._service.receiver.endpoint

    async def stop(self) -> None:
        """Close socket and journal; nothing is lost."""
        async with self._opening:
            self._stopped = True
            if self._open:
                await self._loop_lag.stop()
                await self._service.stop()
                await self._journal.close()
                self._events.close()
                self._open = False

    async def _require_open(self) -> None:
        async with self._opening:
            if self._stopped:
                raise InfraError("the buffer has been stopped")
            if self._open:
                await self._service.require_running()
            else:
                await self._open_all()

    async def _open_all(self) -> None:
        spec, settings = self._spec, self._spec.settings
        journal_settings = JournalSettings(
            run_id=spec.run_id,
            max_trajectory_bytes=settings.max_trajectory_bytes,
            budget_bytes=settings.budget_bytes,
            disk_floor_bytes=spec.disk_floor_bytes,
            dynamic_sampling=spec.dynamic_sampling,
        )
        journal = self._journal = await JournalThread.open(spec.run_dir, journal_settings)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(journal.close)
            self._events = BufferEvents(spec.run_dir, spec.node)
            self._newest_closing = (await journal.call(Journal.statistics)).seq
            service = ReceiverService(self._make_receiver)
            await service.start(settings.port or int(await journal.call(Journal.read_owner_value, "port") or 0))
            undo.push_async_callback(service.stop)
            await journal.call(Journal.store_owner_value, "port", service.receiver.port)
            undo.pop_all()
        self._service, self._open = service, True
        self._loop_lag = StoppableTask(self._events.emit_loop_lag(), "loop lag")

    def _make_receiver(self, port: int) -> TrajectoryReceiver:
        spec, settings = self._spec, self._spec.settings
        return TrajectoryReceiver(
            spec.run_id,
            self.append,
            host=spec.host,
            port=port,
            unix_socket=spec.unix_socket,
            max_bytes=settings.max_trajectory_bytes,
            batch_bytes=min(DEFAULT_BATCH_BYTES, wal_bytes(settings.budget_bytes)),
            find_fault=partial(spec.limits.find_fault, versions=KnownVersions(spec.run_dir)),
            on_refused=self._events.emit_refused,
            on_unroutable=self._events.emit_unroutable,
            on_disconnected=self._events.emit_disconnected,
            curve=spec.curve,
        )

    # -- the scheduler's side ------------------------------------------------------------------------------------

    async def open_group(self, plan: GroupPlan, sampler_state: bytes) -> None:
        """Make the group, its requests and the task sampler's state after it durable.

        Raises BudgetFullError and DiskFullError, with nothing changed, if there is no room for it yet."""
        if await self._call(Journal.open_group, plan, sampler_state):
            self._events.emit_opened(plan)

    async def sampler_state(self) -> bytes | None:
        """Return the task sampler's state after the newest group; None before the first."""
        return await self._call(Journal.read_sampler_state)

    async def task_records(self, upto: int) -> dict[str, TaskRecord]:
        """Return the record of each task over the first ``upto`` closings."""
        records: dict[str, TaskRecord] = {}
        seen = 0
        while seen < upto and (closings := await self._call(Journal.list_closed_since, seen)):
            for closing in closings:
                if closing.seq <= upto:
                    record_outcome(records, closing)
            seen = closings[-1].seq
        return records

    async def open_groups(self) -> list[JournalOpenGroup]:
        """Return the open groups, whose requests a restarted scheduler issues again."""
        return await self._call(Journal.list_open_groups)

    async def abandon_sample(self, group: GroupId, sample: int, reason: str) -> None:
        """Give up a sample whose last replacement failed.  Nothing happens if its trajectory has arrived."""
        closed = await self._call(Journal.abandon_sample, group, sample, str(reason))
        await self._announce_closed([closed] if closed is not None else [])

    async def cancel_group(self, group: GroupId) -> bool:
        """Close an open group that a person cancels, and drop its trajectories.  Returns False if it is not open."""
        closed = await self._call(Journal.cancel_group, group, GroupOutcome.CANCELLED.value)
        await self._announce_closed([closed] if closed is not None else [])
        return closed is not None

    async def wait_progress(self, seen: int, timeout_s: float) -> GroupProgress:
        """Return the groups that closed after the ``seen``-th closing.

        At once if there are any, else when one closes, when bytes are freed, or after ``timeout_s``.  A ``seen`` of −1
        asks for the current count without the past.  Raises DiskFullError if for some time no arriving trajectory could
        be written; they wait, unacknowledged."""
        await self._require_open()
        self._events.raise_if_disk_stays_full()
        freed = self._freed
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self._newest_closing > seen or self._freed != freed)
        except TimeoutError:
            pass
        return await self._call(read_group_progress, seen)

    # -- the learner's side --------------------------------------------------------------------------------------

    async def lease_batch(self, groups: int) -> BatchLease | None:
        """Return the ``groups`` ready groups that were opened first, None while there are fewer.

        They are the same again until :meth:`mark_trained`, unless an older one closes."""
        return await self._call(Journal.lease_batch, groups)

    async def read_payload(self, lease: BatchLease) -> list[bytes]:
        """Return the encoded trajectories of a lease, ordered by (group, sample)."""
        return await self._call(Journal.read_payloads, lease)

    async def mark_trained(self, step: int, trained: Sequence[str], dropped: Mapping[str, DropReason]) -> None:
        """Record the trajectories that optimizer step ``step`` used: together the whole groups of a lease."""
        await self._call(Journal.mark_trained, step, trained, dropped)
        await self._notify_freed()

    async def commit_step(self, step: int) -> None:
        """The checkpoint of ``step`` is complete: release its trajectories from the budget."""
        await self._call(Journal.commit_checkpoint, step)
        await self._notify_freed()

    async def compact_before(self, oldest_kept_step: int) -> None:
        """Delete the payloads that were used up to the oldest kept checkpoint."""
        await self._call(Journal.compact_payloads, oldest_kept_step)

    async def rewind_to_step(self, step: int) -> None:
        """Continue from the checkpoint of ``step``: trajectories that later steps used can be leased again."""
        await self._call(Journal.rewind_to_step, step)
        await self._notify_freed()

    async def end_run(self) -> None:
        """Drop the remaining trajectories with the reason ``run_ended``; :meth:`rewind_to_step` undoes it."""
        await self._call(Journal.end_run)
        await self._notify_freed()

    async def accounting(self) -> JournalAccounting:
        """Return the acknowledged trajectories by state.  Raises JournalError if the counts do not add up."""
        return await self._call(Journal.accounting)

    async def statistics(self) -> BufferStatistics:
        """Return the counts of receiver, journal and export."""
        journal = await self._call(Journal.statistics)
        return BufferStatistics(
            self._service.receiver.endpoint,
            journal,
            self._service.receiver.statistics(),
            journal.uncommitted_bytes > self._spec.settings.budget_bytes // 2,
            self._journal.exporter.failures,
            await self._call(Journal.dropped_tokens),
        )

    # -- arrivals ------------------------------------------------------------------------------------------------

    async def append(self, items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
        """Store received trajectories; they are durable on return."""
        try:
            stored = await self._journal.store(items)
        except DiskFullError as error:
            self._events.mark_disk_full(error)
            raise
        self._events.mark_disk_writable()
        for item, outcome in zip(items, stored.outcomes, strict=True):
            self._events.emit_stored(item, outcome)
        await self._announce_closed(stored.closed)
        return stored.outcomes

    async def _announce_closed(self, closed: Sequence[ClosedGroup]) -> None:
        self._events.emit_closed(closed)
        if closed:
            async with self._changed:
                self._newest_closing = max(self._newest_closing, closed[-1].seq)
                self._changed.notify_all()

    async def _notify_freed(self) -> None:
        async with self._changed:
            self._freed += 1
            self._changed.notify_all()

    async def _call(self, method: Callable[Concatenate[Journal, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        await self._require_open()
        return await self._journal.call(method, *args, **kwargs)
