"""The durable buffer: tickets, trajectories, groups, leases, in one SQLite file.

Invariants, each held by one transaction per operation (WAL, ``synchronous=FULL``: what returned survives power loss):

- A group, its tickets and the task cursor's state are durable before the first ticket leaves
  (:meth:`Journal.open_group`).
- The first trajectory of a (group, sample) wins.  ``acked == trained + dropped + superseded + in_buffer``: every
  acknowledged trajectory is in exactly one of these states, and :meth:`Journal.accounting` checks it against a counter.
- A group closes with its last outstanding sample, by the rules of :mod:`protocol.groups`.
- Consumed is derived from the step that a row records: :meth:`Journal.rewind` to a checkpoint makes leasable again what
  a later step trained, dropped or left over.  Payloads go only when the oldest kept checkpoint covers their row.
- Room for a whole group is reserved before it opens, in the byte budget and on the disk, so that an append never fails
  for want of room.

One process opens the file, and keeps it locked; readers read the export.  Methods are synchronous and belong to the
thread that made the object.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import orjson

from protocol.errors import InfraError, LongshoreError
from protocol.filesystem import free_bytes, require_local, sync_folder
from protocol.groups import GroupOutcome, GroupPlan, group_outcome
from protocol.trajectory import DropReason, GroupId, Status

SCHEMA = 1
_DISK_COPIES = 3
"""A trajectory may stand in the write-ahead log, in the database and in the export at once."""
_TRAINED, _PASSED_OVER = 1, 2
"""How a ready group was spent."""
_MB = 1024 * 1024
LOCK_WAIT_S = 10.0
"""How long to wait for the process that has the file open to end."""

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value ANY) WITHOUT ROWID;
CREATE TABLE groups (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, seeds TEXT NOT NULL, size INTEGER NOT NULL,
    outcome TEXT NOT NULL, closed_seq INTEGER UNIQUE, spent INTEGER NOT NULL DEFAULT 0);
CREATE INDEX groups_state ON groups (outcome, spent, closed_seq);
CREATE TABLE tickets (
    grp INTEGER NOT NULL REFERENCES groups, sample INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT,
    PRIMARY KEY (grp, sample)) WITHOUT ROWID;
CREATE INDEX tickets_out ON tickets (state) WHERE state = 'out';
CREATE TABLE rows (
    trajectory TEXT PRIMARY KEY, grp INTEGER NOT NULL, sample INTEGER NOT NULL, bytes INTEGER NOT NULL,
    digest BLOB NOT NULL, reward REAL NOT NULL, status TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'held',
    step INTEGER, reason TEXT, UNIQUE (grp, sample));
CREATE INDEX rows_state ON rows (state, step, bytes);
CREATE TABLE payloads (trajectory TEXT PRIMARY KEY, blob BLOB NOT NULL);
CREATE TABLE superseded (
    grp INTEGER NOT NULL, sample INTEGER NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (grp, sample, digest)) WITHOUT ROWID;
"""


class JournalError(LongshoreError):
    """A call that would break an invariant of the journal, or a file that does.  Nothing was changed."""


class BudgetFull(InfraError):
    """The byte budget has no room for another group; it has once the learner steps and a checkpoint is written."""


class DiskFull(InfraError):
    """The disk has no room for what the operation may write.  Nothing was written, nothing is acknowledged."""


class AppendOutcome(StrEnum):
    """What became of an arriving trajectory.  All but ``unknown`` are acknowledged: it is in the journal."""

    APPENDED = "appended"
    DUPLICATE = "duplicate"
    """This very trajectory is there already."""
    SUPERSEDED = "superseded"
    """Another trajectory of the same sample came first."""
    UNKNOWN = "unknown"
    """No group waits for it: refused and counted."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One trajectory to append."""

    trajectory: str
    group: GroupId
    sample: int
    reward: float
    status: Status
    digest: bytes
    blob: bytes


@dataclass(frozen=True, slots=True)
class GroupClosed:
    """A group whose last outstanding sample arrived or was abandoned."""

    seq: int
    """Counts closings over the life of the run, from 1."""
    group: GroupId
    task: str
    outcome: GroupOutcome
    size: int
    rewards: dict[int, float]
    """By sample, of those that arrived."""


@dataclass(frozen=True, slots=True)
class OpenGroup:
    plan: GroupPlan
    missing: tuple[int, ...]
    """Samples whose tickets are out."""


@dataclass(frozen=True, slots=True)
class LeasedRow:
    trajectory: str
    sample: int
    reward: float
    bytes: int


@dataclass(frozen=True, slots=True)
class LeasedGroup:
    group: GroupId
    task: str
    size: int
    """Samples planned; ``len(rows)`` is how many the baseline has."""
    rows: tuple[LeasedRow, ...]


@dataclass(frozen=True, slots=True)
class Lease:
    """Whole groups, by group id."""

    groups: tuple[LeasedGroup, ...]

    @property
    def trajectories(self) -> list[str]:
        """In payload order: by (group, sample)."""
        return [row.trajectory for group in self.groups for row in group.rows]


@dataclass(frozen=True, slots=True)
class Accounting:
    """Where every acknowledged trajectory is."""

    acked: int
    trained: int
    dropped: dict[DropReason, int]
    superseded: int
    in_buffer: int
    unknown: int
    """Arrived for no open group and were refused: not acknowledged, so not in the sum."""
    abandoned: int
    """Samples given up after infrastructure failed their last replacement."""
    bytes: int
    """Of payloads that are stored."""

    @property
    def balanced(self) -> bool:
        return self.acked == self.trained + sum(self.dropped.values()) + self.superseded + self.in_buffer

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "dropped": {reason.value: number for reason, number in self.dropped.items()}}


@dataclass(frozen=True, slots=True)
class JournalStatistics:
    seq: int
    """Groups closed so far."""
    opened: int
    open: int
    ready: int
    """Closed and not leased to the end."""
    dropped: int
    """Groups that never reach the learner: zero variance, too few members."""
    passed_over: int
    """Groups of batches in which no token could be trained: they made no step."""
    reserved_bytes: int
    live_bytes: int
    """Held, or trained at a step that no checkpoint covers."""
    uncommitted_bytes: int
    """The trained part of ``live_bytes``; above half the budget a checkpoint is due."""
    committed_step: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    run_id: str
    max_trajectory_bytes: int
    budget_bytes: int
    disk_floor_bytes: int = 64 * _MB
    dynamic_sampling: bool = True
    """Groups without variance are dropped."""


class Journal:
    """Opens or creates the file; raises UserError on a network file system, JournalError for another run's file or one
    that another process has open."""

    def __init__(self, path: Path, settings: JournalSettings, free: Callable[[Path], int] = free_bytes) -> None:
        self.path, self._settings, self._free = path, settings, free
        path.parent.mkdir(parents=True, exist_ok=True)
        require_local(path.parent)
        self._db = sqlite3.connect(path, timeout=LOCK_WAIT_S, isolation_level=None, cached_statements=256)
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        try:
            for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
                self._db.execute(f"PRAGMA {pragma}")
            with self._transaction():
                if not self._all("SELECT 1 FROM sqlite_master WHERE name = 'meta'"):
                    for statement in _TABLES.split(";"):
                        self._db.execute(statement)
                    self._set("schema", SCHEMA)
                    self._set("run_id", self._settings.run_id)
                schema, run_id = self._get("schema"), self._get("run_id")
        except sqlite3.DatabaseError as error:
            raise JournalError(
                f"{self.path} cannot be opened ({error}): another process has it open, or it is damaged; "
                f"`longshore monitor {self.path.parent.parent}` shows whether the run is alive"
            ) from error
        if schema != SCHEMA:
            raise JournalError(
                f"{self.path} has schema {schema}, this longshore writes {SCHEMA}: use the one that made it"
            )
        if run_id != self._settings.run_id:
            raise JournalError(
                f"{self.path} belongs to run {run_id}, not {self._settings.run_id}: give each run its own folder"
            )
        sync_folder(self.path.parent)
        sync_folder(self.path.parent.parent)

    def close(self) -> None:
        self._db.close()

    # -- the conductor's side ------------------------------------------------------------------------------------

    def open_group(self, plan: GroupPlan, cursor: bytes) -> bool:
        """Make ``plan``, its tickets and the task cursor's state after it durable.  The same plan again changes
        nothing, and gives False.

        Raises BudgetFull or DiskFull when there is no room for the group's largest possible trajectories.
        """
        seeds = orjson.dumps(plan.seeds).decode()
        if known := self._all("SELECT task, seeds FROM groups WHERE id = ?", plan.group):
            if known[0] != (plan.task, seeds):
                raise JournalError(f"group {plan.group} is already open with another plan")
            return False
        if self._number("ended"):
            raise JournalError("the run has ended: rewind to a checkpoint's step to go on")
        self._require_room(plan)
        with self._transaction():
            self._db.execute(
                "INSERT INTO groups (id, task, seeds, size, outcome) VALUES (?, ?, ?, ?, ?)",
                (plan.group, plan.task, seeds, plan.size, GroupOutcome.OPEN.value),
            )
            self._db.executemany(
                "INSERT INTO tickets (grp, sample, state) VALUES (?, ?, 'out')",
                [(plan.group, sample) for sample in range(plan.size)],
            )
            self._set("cursor", cursor)
        return True

    def _require_room(self, plan: GroupPlan) -> None:
        settings = self._settings
        needed, reserved = plan.size * settings.max_trajectory_bytes, self._reserved()
        used, budget = reserved + self._live(), f"buffer.budget_bytes = {_size(settings.budget_bytes)}"
        if needed > settings.budget_bytes:
            raise BudgetFull(
                f"one group may need {_size(needed)}, more than {budget}: raise that or lower max_trajectory_bytes"
            )
        if used + needed > settings.budget_bytes:
            raise BudgetFull(
                f"group {plan.group} may need {_size(needed)}, and {_size(used)} of {budget} are taken: "
                "the next step and checkpoint free them"
            )
        folder, largest = self.path.parent, (reserved + needed) * _DISK_COPIES
        free = self._free(folder)
        if free < largest + settings.disk_floor_bytes:
            raise DiskFull(
                f"{folder} has {_size(free)} free; the open groups and one more may need {_size(largest)} beside the "
                f"reserve of {_size(settings.disk_floor_bytes)}: free some space "
                f"(du -xh {folder.parent} | sort -h | tail)"
            )

    def cursor(self) -> bytes | None:
        """The task cursor's state of the newest group."""
        return cast("bytes | None", self._get("cursor"))

    def open_groups(self) -> list[OpenGroup]:
        """Groups that wait for samples, oldest first."""
        if self._number("ended"):
            return []
        groups = self._all("SELECT id, task, seeds FROM groups WHERE outcome = 'open' ORDER BY id")
        return [
            OpenGroup(
                GroupPlan(GroupId(group), task, tuple(orjson.loads(seeds))),
                tuple(
                    sample
                    for (sample,) in self._all(
                        "SELECT sample FROM tickets WHERE grp = ? AND state = 'out' ORDER BY sample", group
                    )
                ),
            )
            for group, task, seeds in groups
        ]

    def abandon(self, group: GroupId, sample: int, reason: str) -> GroupClosed | None:
        """Give one sample up.  Returns the closing if it was the last one out; changes nothing if it is not out."""
        if self._number("ended"):
            return None
        with self._transaction():
            changed = self._db.execute(
                "UPDATE tickets SET state = 'abandoned', reason = ? WHERE grp = ? AND sample = ? AND state = 'out'",
                (reason, group, sample),
            )
            return self._close_if_complete(group) if changed.rowcount else None

    def closed_since(self, seen: int, limit: int = 1000) -> list[GroupClosed]:
        """Closings after the ``seen``-th, in order, at most ``limit``."""
        groups = self._all(
            "SELECT closed_seq, id, task, outcome, size FROM groups WHERE closed_seq > ? ORDER BY closed_seq LIMIT ?",
            seen,
            limit,
        )
        return [
            GroupClosed(seq, GroupId(group), task, GroupOutcome(outcome), size, self._rewards(group))
            for seq, group, task, outcome, size in groups
        ]

    # -- the workers' side ---------------------------------------------------------------------------------------

    def append(self, arrivals: Sequence[Arrival]) -> tuple[list[AppendOutcome], list[GroupClosed]]:
        """Append a batch in one transaction, durable on return: an outcome per arrival, and the groups it closed."""
        closed: list[GroupClosed] = []
        with self._transaction():
            outcomes: list[AppendOutcome] = []
            for arrival in arrivals:
                outcomes.append(self._append_one(arrival))
                if outcomes[-1] is AppendOutcome.APPENDED and (closing := self._close_if_complete(arrival.group)):
                    closed.append(closing)
        return outcomes, closed

    def _append_one(self, new: Arrival) -> AppendOutcome:
        if there := self._all("SELECT digest FROM rows WHERE grp = ? AND sample = ?", new.group, new.sample):
            if there[0][0] == new.digest:
                return AppendOutcome.DUPLICATE
            inserted = self._db.execute(
                "INSERT OR IGNORE INTO superseded VALUES (?, ?, ?)", (new.group, new.sample, new.digest)
            )
            self._add("acked", inserted.rowcount)
            return AppendOutcome.SUPERSEDED
        is_open = self._all(
            "SELECT 1 FROM groups JOIN tickets ON grp = id WHERE id = ? AND sample = ? AND outcome = 'open'",
            new.group,
            new.sample,
        )
        if not is_open or self._number("ended"):
            self._add("unknown", 1)
            return AppendOutcome.UNKNOWN
        self._db.execute(
            "INSERT INTO rows (trajectory, grp, sample, bytes, digest, reward, status) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (new.trajectory, new.group, new.sample, len(new.blob), new.digest, new.reward, new.status.value),
        )
        self._db.execute("INSERT INTO payloads VALUES (?, ?)", (new.trajectory, new.blob))
        self._db.execute(
            "UPDATE tickets SET state = 'arrived', reason = NULL WHERE grp = ? AND sample = ?", (new.group, new.sample)
        )
        self._add("acked", 1)
        return AppendOutcome.APPENDED

    def _close_if_complete(self, group: GroupId) -> GroupClosed | None:
        ((task, size),) = self._all("SELECT task, size FROM groups WHERE id = ?", group)
        abandoned = self._all("SELECT sample FROM tickets WHERE grp = ? AND state = 'abandoned'", group)
        rewards = self._rewards(group)
        given_up = [sample for (sample,) in abandoned]
        outcome = group_outcome(size, rewards, given_up, dynamic_sampling=self._settings.dynamic_sampling)
        if outcome is GroupOutcome.OPEN:
            return None
        seq = self._closed() + 1
        self._db.execute("UPDATE groups SET outcome = ?, closed_seq = ? WHERE id = ?", (outcome.value, seq, group))
        if outcome.drop_reason is not None:
            self._db.execute(
                "UPDATE rows SET state = 'dropped', reason = ? WHERE grp = ?", (outcome.drop_reason.value, group)
            )
            self._db.execute(
                "DELETE FROM payloads WHERE trajectory IN (SELECT trajectory FROM rows WHERE grp = ?)", (group,)
            )
        return GroupClosed(seq, group, task, outcome, size, rewards)

    def _rewards(self, group: int) -> dict[int, float]:
        return dict(self._all("SELECT sample, reward FROM rows WHERE grp = ? ORDER BY sample", group))

    # -- the learner's side --------------------------------------------------------------------------------------

    def lease(self, groups: int) -> Lease | None:
        """The ``groups`` ready groups that were opened first, whose tokens are the oldest; None while there are fewer.
        Changes nothing: until :meth:`mark_trained` they are held, and the same call gives them again unless an older
        group closes."""
        if self._number("ended"):
            return None
        oldest = self._all(
            "SELECT id, task, size FROM groups WHERE outcome = 'ready' AND spent = 0 ORDER BY id LIMIT ?",
            groups,
        )
        if len(oldest) < groups:
            return None
        return Lease(
            tuple(
                LeasedGroup(
                    GroupId(group),
                    task,
                    size,
                    tuple(
                        LeasedRow(*row)
                        for row in self._all(
                            "SELECT trajectory, sample, reward, bytes FROM rows WHERE grp = ? ORDER BY sample", group
                        )
                    ),
                )
                for group, task, size in sorted(oldest)
            )
        )

    def payload(self, lease: Lease) -> list[bytes]:
        """The packed blobs of ``lease``, by (group, sample)."""
        blobs: list[bytes] = []
        for trajectory in lease.trajectories:
            stored = self._all("SELECT blob FROM payloads WHERE trajectory = ?", trajectory)
            if not stored:
                raise JournalError(f"trajectory {trajectory} of the lease is no longer stored")
            blobs.append(stored[0][0])
        return blobs

    def mark_trained(self, step: int, trained: Sequence[str], dropped: Mapping[str, DropReason]) -> None:
        """Record that optimizer step ``step`` used ``trained`` and dropped ``dropped``, which together are whole ready
        groups.  Where none was trained, no step was taken: the groups are passed over, and others fill the step.

        The same call again changes nothing; anything else that is no longer held raises JournalError.
        """
        fates: dict[str, tuple[str, str | None]] = dict.fromkeys(trained, ("trained", None))
        fates |= {name: ("dropped", reason.value) for name, reason in dropped.items()}
        if len(fates) != len(trained) + len(dropped):
            raise JournalError(f"step {step} trains and drops the same trajectory, or one twice")
        with self._transaction():
            groups: set[int] = set()
            for name, (state, reason) in fates.items():
                found = self._all("SELECT grp, state, step, reason FROM rows WHERE trajectory = ?", name)
                if not found or found[0][1:] not in (("held", None, None), (state, step, reason)):
                    raise JournalError(
                        f"step {step} cannot use trajectory {name}: {found[0][1:] if found else 'unknown'}"
                    )
                groups.add(found[0][0])
                self._db.execute(
                    "UPDATE rows SET state = ?, step = ?, reason = ? WHERE trajectory = ?", (state, step, reason, name)
                )
            for group in groups:
                if self._all("SELECT 1 FROM rows WHERE grp = ? AND state = 'held'", group) or not self._all(
                    "SELECT 1 FROM groups WHERE id = ? AND outcome = 'ready'", group
                ):
                    raise JournalError(f"step {step} uses part of group {group}, or a group that is not ready")
                self._db.execute(
                    "UPDATE groups SET spent = ? WHERE id = ?", (_TRAINED if trained else _PASSED_OVER, group)
                )

    def commit(self, step: int) -> None:
        """A checkpoint of ``step`` is complete."""
        with self._transaction():
            self._set("committed", max(step, self._number("committed")))

    def compact(self, oldest_kept_step: int) -> None:
        """Forget the payloads that no kept checkpoint can need: those used at or before the oldest one's step."""
        if oldest_kept_step > self._number("committed"):
            raise JournalError(f"no checkpoint of step {oldest_kept_step} is committed")
        with self._transaction():
            self._db.execute(
                "DELETE FROM payloads WHERE trajectory IN (SELECT trajectory FROM rows WHERE step > ? AND step <= ?)",
                (self._number("compacted"), oldest_kept_step),
            )
            self._set("compacted", max(oldest_kept_step, self._number("compacted")))

    def rewind(self, step: int) -> None:
        """Continue from the checkpoint of ``step``: what later steps used, dropped or left over is held again."""
        if step < self._number("compacted"):
            raise JournalError(
                f"cannot rewind to step {step}: trajectories up to step {self._number('compacted')} are compacted; "
                "resume from a checkpoint that was kept"
            )
        with self._transaction():
            self._db.execute(
                "UPDATE groups SET spent = 0 WHERE spent > 0 AND id IN (SELECT grp FROM rows WHERE step > ?)", (step,)
            )
            self._db.execute("UPDATE rows SET state = 'held', step = NULL, reason = NULL WHERE step > ?", (step,))
            self._set("committed", min(step, self._number("committed")))
            self._set("ended", 0)

    def end_run(self) -> None:
        """Drop what is left, reason ``run_ended``, as if at the step after the last; a later :meth:`rewind` undoes it.
        Until then no group opens and no trajectory is taken."""
        with self._transaction():
            ((last,),) = self._all("SELECT max(step) FROM rows")
            self._db.execute(
                "UPDATE rows SET state = 'dropped', reason = ?, step = ? WHERE state = 'held'",
                (DropReason.RUN_ENDED.value, max(last or 0, self._number("committed")) + 1),
            )
            self._set("ended", 1)

    # -- for people, and for the export --------------------------------------------------------------------------

    def accounting(self) -> Accounting:
        """Raises JournalError if an acknowledged trajectory is not in exactly one place."""
        dropped = self._all("SELECT reason, count(*) FROM rows WHERE state = 'dropped' GROUP BY reason")
        books = Accounting(
            acked=self._number("acked"),
            trained=self._count("rows WHERE state = 'trained'"),
            dropped={DropReason(reason): number for reason, number in dropped},
            superseded=self._count("superseded"),
            in_buffer=self._count("rows WHERE state = 'held'"),
            unknown=self._number("unknown"),
            abandoned=self._count("tickets WHERE state = 'abandoned'"),
            bytes=self._all("SELECT coalesce(sum(bytes), 0) FROM rows JOIN payloads USING (trajectory)")[0][0],
        )
        if not books.balanced:
            raise JournalError(f"the books of {self.path} do not balance: {books}")
        return books

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(
            seq=self._closed(),
            opened=self._count("groups"),
            open=self._count("groups WHERE outcome = 'open'"),
            ready=self._count("groups WHERE outcome = 'ready' AND spent = 0"),
            dropped=self._count("groups WHERE outcome IN ('zero_variance', 'infra_short')"),
            passed_over=self._count(f"groups WHERE spent = {_PASSED_OVER}"),
            reserved_bytes=self._reserved(),
            live_bytes=self._live(),
            uncommitted_bytes=self._uncommitted(),
            committed_step=self._number("committed"),
            ended=bool(self._number("ended")),
        )

    def stored(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Id of each trajectory whose payload is stored, oldest first, and how to read it."""
        for (name,) in self._all("SELECT trajectory FROM payloads ORDER BY rowid"):
            yield name, lambda name=name: self._all("SELECT blob FROM payloads WHERE trajectory = ?", name)[0][0]

    def remember(self, key: str, value: int | str) -> None:
        """Keep a small value of the journal's owner under ``owner.key``."""
        with self._transaction():
            self._set(f"owner.{key}", value)

    def recall(self, key: str) -> int | str | None:
        return cast("int | str | None", self._get(f"owner.{key}"))

    def durability(self) -> tuple[str, int]:
        """``journal_mode`` and ``synchronous`` (2 is FULL) as SQLite reports them."""
        return self._all("PRAGMA journal_mode")[0][0], self._all("PRAGMA synchronous")[0][0]

    # -- inside --------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _NO_ROOM:
                raise DiskFull(
                    f"{self.path} could not be written ({error}) with {_size(self._free(self.path.parent))} free: "
                    f"free some space (du -xh {self.path.parent.parent} | sort -h | tail); nothing was acknowledged"
                ) from error
            raise

    def _all(self, query: str, *values: object) -> list[Any]:
        return self._db.execute(query, values).fetchall()

    def _count(self, what: str) -> int:
        return self._all(f"SELECT count(*) FROM {what}")[0][0]  # noqa: S608  # `what` is written in this file

    def _get(self, key: str) -> object:
        found = self._all("SELECT value FROM meta WHERE key = ?", key)
        return found[0][0] if found else None

    def _number(self, key: str) -> int:
        return cast("int | None", self._get(key)) or 0

    def _set(self, key: str, value: bytes | int | str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _add(self, key: str, number: int) -> None:
        self._set(key, self._number(key) + number)

    def _closed(self) -> int:
        return self._all("SELECT coalesce(max(closed_seq), 0) FROM groups")[0][0]

    def _reserved(self) -> int:
        if self._number("ended"):
            return 0
        return self._count("tickets WHERE state = 'out'") * self._settings.max_trajectory_bytes

    def _live(self) -> int:
        held = self._all("SELECT coalesce(sum(bytes), 0) FROM rows WHERE state = 'held'")[0][0]
        return held + self._uncommitted()

    def _uncommitted(self) -> int:
        return self._all(
            "SELECT coalesce(sum(bytes), 0) FROM rows WHERE state IN ('trained', 'dropped') AND step > ?",
            self._number("committed"),
        )[0][0]


_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})


def _size(number: int) -> str:
    return f"{number / _MB:.1f} MiB" if number >= _MB else f"{number} bytes"
