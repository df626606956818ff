"""The buffer: takes trajectories from workers, keeps them durable, hands whole groups to the learner.

It hosts the receiver (:mod:`protocol.stream`), the journal (:mod:`protocol.journal`) and the export for readers
(:mod:`protocol.run_directory.trajectory_export`).  Invariants:

- A worker's ``send`` returns only after the journal's transaction; the buffer holds nothing that the journal lacks, so
  its process may be killed at any time: made again with the same settings, its first call opens everything again.
- All journal work runs in one thread, in the order of the calls.
- Every method may be called again after its answer was lost.

The conductor waits here for groups to close (``wait_progress``), the learner's loop for whole batches (``lease``);
the buffer waits for nobody.  It ends with :meth:`Buffer.stop` or with its process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from actors.buffer.group_progress import GroupProgress, read_group_progress
from actors.buffer.task_records import TaskRecord, record_outcome
from actors.runtime.stoppable_task import StoppableTask
from protocol import codec
from protocol.errors import InfraError, UserError
from protocol.events import EventLog
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
    TrajectoryArrival,
    wal_bytes,
)
from protocol.run_directory.trajectory_export import TRAJECTORIES_FOLDER, TrajectoryExporter
from protocol.stream import DEFAULT_BATCH_BYTES, CurveServer, ReceivedTrajectory, ReceiverStatistics, TrajectoryReceiver
from protocol.stream.messages import RefusalReason
from protocol.trajectory import DropReason, GroupId

P = ParamSpec("P")
R = TypeVar("R")

_BIND_ATTEMPTS = 50
_BIND_RETRY_S = 0.2
"""A restarted buffer takes its old port; the system may need a moment to give it back."""

_FULL_PATIENCE_S = 15.0
"""A disk may be full for so long before the run ends over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSettings:
    run_dir: Path
    """On a local disk of the buffer's host."""
    run_id: str
    node: str
    host: str = "127.0.0.1"
    port: int = 0
    """0: a free port, the same again after a restart."""
    budget_bytes: int = 1 << 30
    """Bound of what is reserved, held, or trained and not yet in a checkpoint.  At least twice the largest batch
    (groups per step × group size × ``max_trajectory_bytes``), so that one can be filled while the last is kept."""
    max_trajectory_bytes: int = 1 << 20
    curve: CurveServer | None = None
    """Keys of the receiver and of those who may send to it; needed where ``host`` is not loopback."""
    disk_floor_bytes: int = 64 << 20
    dynamic_sampling: bool = True
    """Groups without variance are dropped, and others take their place."""


@dataclass(frozen=True, slots=True)
class BufferStatistics:
    endpoint: str
    journal: JournalStatistics
    receiver: ReceiverStatistics
    wants_checkpoint: bool
    """More than half the budget is trained and in no checkpoint."""
    export_failures: int
    dropped_tokens: dict[str, dict[str, int]]
    """See :meth:`Journal.dropped_tokens`."""


@dataclass(frozen=True, slots=True)
class _Full:
    """Nothing that arrives can be written."""

    error: DiskFullError
    since: float


class TrajectoryBuffer:
    """Cheap to make; the first call of any method opens journal and socket."""

    def __init__(self, settings: BufferSettings) -> None:
        self.settings = settings
        self._opening = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._seq = self._freed = 0
        self._serving: StoppableTask | None = None
        self._stopped = False
        self._full: _Full | None = None

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> str:
        """The endpoint that senders connect to.  Opens what the journal holds if there is one.

        Raises UserError for a run directory on a network file system and for a journal that is an older copy,
        JournalError for another run's journal, InfraError if the port cannot be had."""
        await self._ready()
        return self._receiver.endpoint

    async def stop(self) -> None:
        """Close socket and journal; nothing is lost by it."""
        async with self._opening:
            self._stopped = True
            if self._serving is not None:
                await self._serving.stop()
                await self._in_thread(self._journal.close)
                self._thread.shutdown()
                self._events.close()
                self._serving = None

    async def _ready(self) -> None:
        async with self._opening:
            if self._stopped:
                raise InfraError("the buffer has been stopped")
            if self._serving is None:
                await self._open()
            elif self._serving.ended:
                await self._serving.stop()  # raises what ended it
                raise InfraError("the buffer's receiver has ended")

    async def _open(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        try:
            self._journal = await self._in_thread(self._open_journal)
            try:
                await self._open_rest()
            except BaseException:
                await self._in_thread(self._journal.close)
                raise
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def _open_rest(self) -> None:
        self._exporter = await self._in_thread(self._open_export)
        self._events = EventLog(self.settings.run_dir, "buffer", self.settings.node)
        self._seq = (await self._in_thread(self._journal.statistics)).seq
        port = self.settings.port or int(await self._in_thread(self._journal.read_owner_value, "port") or 0)
        listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        serving = StoppableTask(self._serve(port, listening), "buffer")
        try:
            await listening
            await self._in_thread(self._journal.store_owner_value, "port", self._receiver.port)
        except BaseException:
            await serving.stop()
            raise
        self._serving = serving

    async def _serve(self, port: int, listening: asyncio.Future[None]) -> None:
        """Receive until cancelled; ``listening`` tells when that began, or why it could not."""
        for left in reversed(range(_BIND_ATTEMPTS)):
            try:
                self._receiver = self._make_receiver(port)
                async with self._receiver:
                    listening.set_result(None)
                    await asyncio.Event().wait()
            except Exception as error:
                if listening.done():
                    raise
                if not left or not isinstance(error, InfraError):
                    listening.set_exception(error)
                    return
            await asyncio.sleep(_BIND_RETRY_S)

    def _make_receiver(self, port: int) -> TrajectoryReceiver:
        return TrajectoryReceiver(
            self.settings.run_id,
            self._append,
            host=self.settings.host,
            port=port,
            max_bytes=self.settings.max_trajectory_bytes,
            batch_bytes=min(DEFAULT_BATCH_BYTES, wal_bytes(self.settings.budget_bytes)),
            on_refused=self._refused,
            on_unroutable=self._unroutable,
            on_disconnected=self._disconnected,
            curve=self.settings.curve,
        )

    def _open_journal(self) -> Journal:
        settings = self.settings
        return Journal(
            settings.run_dir / "buffer" / "journal.sqlite",
            JournalSettings(
                run_id=settings.run_id,
                max_trajectory_bytes=settings.max_trajectory_bytes,
                budget_bytes=settings.budget_bytes,
                disk_floor_bytes=settings.disk_floor_bytes,
                dynamic_sampling=settings.dynamic_sampling,
            ),
        )

    def _open_export(self) -> TrajectoryExporter:
        exporter = TrajectoryExporter(self.settings.run_dir)
        self._require_newest(exporter.read_newest_id())
        stored = dict(self._journal.iterate_payloads())
        for name in exporter.find_unexported(stored):
            blob = stored[name]()
            try:
                summary = codec.inspect_blob(blob)
            except codec.CodecError:  # who leases it is told so, with the way out
                exporter.failures += 1
            else:
                exporter.export_trajectory(summary, blob)
        return exporter

    def _require_newest(self, exported: str | None) -> None:
        """Raises UserError where the journal is an older copy: what it does not know would be lost without a word, and
        its names given to others."""
        path = self._journal.path
        if exported is not None and self._journal.is_older_copy(exported):
            raise UserError(
                f"{path} is older than what was exported from it: it does not know {exported}, which was acknowledged. "
                f"Put the right one back, with its {path.name}-wal, or, to go on without what it does not know, move "
                f"{self.settings.run_dir / TRAJECTORIES_FOLDER} away"
            )

    # -- the conductor's side ------------------------------------------------------------------------------------

    async def open_group(self, plan: GroupPlan, sampler_state: bytes) -> None:
        """Durable on return: the group, its tickets, and the task cursor's state after it.  Raises BudgetFull and
        DiskFull when there is no room for it yet; nothing was changed then."""
        if await self._call(Journal.open_group, plan, sampler_state):
            self._events.emit("group.opened", group=plan.group, task=plan.task, size=plan.size)

    async def sampler_state(self) -> bytes | None:
        """The task cursor's state after the newest group; None before the first."""
        return await self._call(Journal.read_sampler_state)

    async def task_records(self, upto: int) -> dict[str, TaskRecord]:
        """What the first ``upto`` closings have shown of each task."""
        records: dict[str, TaskRecord] = {}
        seen = 0
        while seen < upto and (closings := await self._call(Journal.list_closed_since, seen)):
            for closing in closings:
                if closing.seq <= upto:
                    record_outcome(records, closing)
            seen = closings[-1].seq
        return records

    async def open_groups(self) -> list[JournalOpenGroup]:
        """What a restarted conductor issues tickets for again."""
        return await self._call(Journal.list_open_groups)

    async def abandon_sample(self, group: GroupId, sample: int, reason: str) -> None:
        """Infrastructure failed the sample's last replacement.  Nothing happens if its trajectory has arrived."""
        closed = await self._call(Journal.abandon_sample, group, sample, str(reason))
        await self._progressed([closed] if closed is not None else [])

    async def cancel_group(self, group: GroupId) -> bool:
        """A person gives an open group up: it closes, and what has arrived of it is dropped.  False where it is not
        open."""
        closed = await self._call(Journal.cancel_group, group, GroupOutcome.CANCELLED.value)
        await self._progressed([closed] if closed is not None else [])
        return closed is not None

    async def wait_progress(self, seen: int, timeout_s: float) -> GroupProgress:
        """Groups that closed after the ``seen``-th closing: at once if there are any, else when one closes, when bytes
        are freed, or after ``timeout_s``.  ``seen`` −1 asks where the count stands, without the past.

        Raises DiskFull when for some time no arriving trajectory could be written: they wait, not acknowledged."""
        await self._ready()
        if self._full is not None and time.monotonic() - self._full.since > _FULL_PATIENCE_S:
            raise self._full.error
        freed = self._freed
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self._seq > seen or self._freed != freed)
        except TimeoutError:
            pass
        await self._ready()
        return await self._in_thread(partial(read_group_progress, self._journal, seen))

    # -- the learner's side --------------------------------------------------------------------------------------

    async def lease_batch(self, groups: int) -> BatchLease | None:
        """The ``groups`` ready groups that were opened first, None while there are fewer; the same ones again until
        :meth:`mark_trained`, unless an older one closes."""
        return await self._call(Journal.lease_batch, groups)

    async def read_payload(self, lease: BatchLease) -> list[bytes]:
        """Blobs for :func:`protocol.codec.loads`, by (group, sample)."""
        return await self._call(Journal.read_payloads, lease)

    async def mark_trained(self, step: int, trained: Sequence[str], dropped: Mapping[str, DropReason]) -> None:
        """Optimizer step ``step`` used these: together the whole groups of a lease."""
        await self._call(Journal.mark_trained, step, trained, dropped)
        await self._notify_freed()

    async def commit_step(self, step: int) -> None:
        """The checkpoint of ``step`` is complete: its trajectories leave the budget."""
        await self._call(Journal.commit_checkpoint, step)
        await self._notify_freed()

    async def compact_before(self, oldest_kept_step: int) -> None:
        """The oldest checkpoint that is kept is of this step: payloads used up to it are forgotten."""
        await self._call(Journal.compact_payloads, oldest_kept_step)

    async def rewind_to_step(self, step: int) -> None:
        """Continue from the checkpoint of ``step``: what later steps used may be leased again."""
        await self._call(Journal.rewind_to_step, step)
        await self._notify_freed()

    async def end_run(self) -> None:
        """Drop what is left, reason ``run_ended``; :meth:`rewind` undoes it."""
        await self._call(Journal.end_run)
        await self._notify_freed()

    async def accounting(self) -> JournalAccounting:
        """Where every acknowledged trajectory is.  Raises JournalError if the books do not balance."""
        return await self._call(Journal.accounting)

    async def statistics(self) -> BufferStatistics:
        journal = await self._call(Journal.statistics)
        return BufferStatistics(
            self._receiver.endpoint,
            journal,
            self._receiver.statistics(),
            journal.uncommitted_bytes > self.settings.budget_bytes // 2,
            self._exporter.failures,
            await self._call(Journal.dropped_tokens),
        )

    # -- inside --------------------------------------------------------------------------------------------------

    async def _call(self, method: Callable[Concatenate[Journal, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        await self._ready()
        return await self._in_thread(partial(method, self._journal, *args, **kwargs))

    async def _in_thread(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *args, **kwargs))

    async def _append(self, items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
        """The receiver's callback: durable on return."""
        try:
            outcomes, closed = await self._in_thread(self._store, items, [item.to_arrival() for item in items])
        except DiskFullError as full:
            self._disk_is_full(full)
            raise
        self._disk_has_room()
        for item, outcome in zip(items, outcomes, strict=True):
            self._emit_stored(item, outcome)
        await self._progressed(closed)
        return outcomes

    def _disk_is_full(self, error: DiskFullError) -> None:
        if self._full is None:
            self._full = _Full(error, time.monotonic())
            self._events.emit("disk.full", reason=str(error))

    def _disk_has_room(self) -> None:
        """The event of its end: that of the beginning may have had no room itself."""
        if self._full is not None:
            seconds = round(time.monotonic() - self._full.since, 3)
            self._events.emit("disk.freed", seconds=seconds, reason=str(self._full.error))
            self._full = None

    def _store(
        self, items: Sequence[ReceivedTrajectory], arrivals: Sequence[TrajectoryArrival]
    ) -> tuple[list[AppendOutcome], list[ClosedGroup]]:
        outcomes, closed = self._journal.append_batch(arrivals)
        for item, arrival, outcome in zip(items, arrivals, outcomes, strict=True):
            if outcome is AppendOutcome.APPENDED:
                self._exporter.export_trajectory(item.summary, arrival.blob)
        return outcomes, closed

    async def _progressed(self, closed: Sequence[ClosedGroup]) -> None:
        for group in closed:
            self._events.emit(
                "group.closed",
                group=group.group,
                task=group.task,
                outcome=group.outcome.value,
                size=group.size,
                rewards=[group.rewards.get(sample) for sample in range(group.size)],
            )
        if closed:
            async with self._changed:
                self._seq = max(self._seq, closed[-1].seq)
                self._changed.notify_all()

    async def _notify_freed(self) -> None:
        async with self._changed:
            self._freed += 1
            self._changed.notify_all()

    def _emit_stored(self, item: ReceivedTrajectory, outcome: AppendOutcome) -> None:
        """An event for what is counted; a repetition was counted the first time."""
        summary, ticket = item.summary, item.summary.request
        if outcome in {AppendOutcome.DUPLICATE, AppendOutcome.SUPERSEDED_AGAIN}:
            return
        if outcome is AppendOutcome.UNKNOWN:
            detail = f"no group waits for {ticket.trajectory_id}"
            self._events.emit("message.refused", reason=outcome.value, sender=item.sender, detail=detail)
            return
        self._events.emit(
            "trajectory.stored",
            trajectory=ticket.trajectory_id,
            group=ticket.group,
            sample=ticket.sample,
            outcome=outcome.value,
            status=summary.status.value,
            reward=summary.reward.total,
            tokens=summary.tokens,
            sampled=summary.sampled,
            versions_min=summary.oldest,
            versions_max=summary.newest,
        )

    def _unroutable(self, sender: str, kind: str) -> None:
        """It costs nothing: the sender misses the answer and asks again."""
        self._events.emit("ack.unroutable", sender=sender, answer=kind)

    def _disconnected(self, peer: str) -> None:
        self._events.emit("peer.disconnected", peer=peer)

    def _refused(self, reason: RefusalReason, sender: str, detail: str) -> None:
        self._events.emit("message.refused", reason=reason.value, sender=sender, detail=detail)
