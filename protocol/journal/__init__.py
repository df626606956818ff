"""The durable buffer: tickets, trajectories, groups, leases, in one SQLite file.

Invariants, each held by one transaction per operation (WAL, ``synchronous=FULL``: what returned survives power loss):

- A group, its tickets and the task cursor's state are durable before the first ticket leaves
  (:meth:`Journal.open_group`).
- The first trajectory of a (group, sample) wins.  ``acknowledged == trained + dropped + superseded + in_buffer``: every
  acknowledged trajectory is in exactly one of these states, and :meth:`Journal.accounting` checks it against a counter.
- A group closes with its last outstanding sample, by the rules of :mod:`protocol.groups`.
- Consumed is derived from the step that a row records: :meth:`Journal.rewind` to a checkpoint makes leasable again what
  a later step trained, dropped or left over.  Its payloads go only when the oldest kept checkpoint covers their rows.
- What no step used is dropped for good, its payloads with it: a group without variance or with too few members when it
  closes (the payloads at the next append, when the owner has exported them), a batch without a token young enough to
  train when it is passed over.
- Room for a whole group is reserved before it opens, in the byte budget and on the disk, so that an append never fails
  for want of room.

One process opens the file, and keeps it locked; readers read the export.  Methods are synchronous and belong to the
thread that made the object.
"""

from __future__ import annotations

from protocol.journal.accounting import AccountingQueries
from protocol.journal.arrivals import AppendOperations
from protocol.journal.leases import LeaseOperations
from protocol.journal.planning import PlanningOperations
from protocol.journal.store import wal_bytes
from protocol.journal.values import (
    AppendOutcome,
    BatchLease,
    BudgetFullError,
    ClosedGroup,
    DiskFullError,
    JournalAccounting,
    JournalError,
    JournalOpenGroup,
    JournalSettings,
    JournalStatistics,
    LeasedGroup,
    LeasedTrajectory,
    TrajectoryAccounting,
    TrajectoryArrival,
)


class Journal(PlanningOperations, AppendOperations, LeaseOperations, AccountingQueries):
    """Opens or creates the file; raises UserError on a network file system, JournalError for another run's file or one
    that another process has open."""


__all__ = [
    "AppendOutcome",
    "BatchLease",
    "BudgetFullError",
    "ClosedGroup",
    "DiskFullError",
    "Journal",
    "JournalAccounting",
    "JournalError",
    "JournalOpenGroup",
    "JournalSettings",
    "JournalStatistics",
    "LeasedGroup",
    "LeasedTrajectory",
    "TrajectoryAccounting",
    "TrajectoryArrival",
    "wal_bytes",
]
