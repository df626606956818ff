"""The durable buffer: rollout requests, trajectories, groups and leases in one SQLite file.

Invariants, each held by one transaction per operation (WAL, ``synchronous=FULL``: what returned survives power loss):

- A group, its rollout requests and the task sampler's state are durable before the first request is sent
  (:meth:`Journal.open_group`).
- The first trajectory of a (group, sample) wins.  ``acknowledged == trained + dropped + superseded + in_buffer``: every
  acknowledged trajectory is in exactly one of these states, and :meth:`Journal.accounting` checks it against a counter.
- A group closes with its last outstanding sample, by the rules of :mod:`protocol.groups`.
- Whether a trajectory is consumed follows from the step in its row: :meth:`Journal.rewind_to_step` makes everything
  leasable again that a later step trained, dropped or left over.  Its payloads are deleted only when the oldest kept
  checkpoint covers their rows.
- A group that no step can use is dropped for good, with its payloads: without variance or with too few members when it
  closes (payloads at the next append, after the owner has exported them), or when it is passed over because no token
  was fresh enough to train.
- Room for a whole group is reserved before it opens, in the byte budget and on disk, so that an append never fails for
  lack of space.

One process opens the file and keeps it locked; readers read the export.  Methods are synchronous and must be called
from the thread that made the object.
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
    """The journal of one run.

    Opening creates the file if needed.  Raises UserError on a network file system, and JournalError for another run's
    file or one that another process has open.
    """


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
