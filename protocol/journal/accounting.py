"""Accounting, statistics and stored payloads, for people and the export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import cast

from protocol.groups import OUTCOME_DROP_REASONS
from protocol.journal.schema import PASSED_OVER
from protocol.journal.store import JournalStore, damage_message
from protocol.journal.values import JournalAccounting, JournalError, JournalStatistics
from protocol.staleness import length_bucket
from protocol.trajectory import DropReason

_DROPPED = ", ".join(f"'{outcome}'" for outcome in OUTCOME_DROP_REASONS)


class AccountingQueries(JournalStore):
    """Read-only queries, and the small values that the journal's owner stores."""

    def accounting(self) -> JournalAccounting:
        """Count trajectories by state.  Raises JournalError if an acknowledged one is not in exactly one state."""
        found = self._query("SELECT reason, count(*) FROM trajectories WHERE state = 'dropped' GROUP BY reason")
        with self._checked_values():
            dropped = {DropReason(reason): number for reason, number in found}
        accounting = JournalAccounting(
            acknowledged=self._number("acknowledged"),
            trained=self._count("trajectories WHERE state = 'trained'"),
            dropped=dropped,
            superseded=self._count("superseded_trajectories"),
            in_buffer=self._count("trajectories WHERE state = 'buffered'"),
            unknown=self._number("unknown"),
            abandoned=self._count("rollout_requests WHERE state = 'abandoned'"),
            bytes=self._query("SELECT coalesce(sum(bytes), 0) FROM trajectories JOIN payloads USING (trajectory)")[0][
                0
            ],
            dropped_tokens=self.dropped_tokens(),
            lost=self._number("lost"),
        )
        if not accounting.balanced:
            raise JournalError(f"the accounting of {self.path} does not add up: {accounting}")
        return accounting

    def dropped_tokens(self) -> dict[str, dict[str, int]]:
        """Return the sampled tokens of dropped trajectories over the whole run: reason → length bucket → tokens."""
        found: dict[str, Counter[str]] = {}
        for reason, sampled, count in self._query(
            "SELECT reason, sampled, count(*) FROM trajectories WHERE state = 'dropped' GROUP BY reason, sampled"
        ):
            found.setdefault(reason, Counter())[length_bucket(sampled)] += sampled * count
        return {reason: dict(buckets) for reason, buckets in found.items()}

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(
            seq=self._closed(),
            opened=self._count("groups"),
            open=self._count("groups WHERE outcome = 'open'"),
            ready=self._count("groups WHERE outcome = 'ready' AND used = 0"),
            dropped=self._count(f"groups WHERE outcome IN ({_DROPPED})"),
            passed_over=self._count(f"groups WHERE used = {PASSED_OVER}"),
            reserved_bytes=self._reserved(),
            live_bytes=self._live(),
            uncommitted_bytes=self._uncommitted(),
            committed_step=self._number("committed"),
            ended=bool(self._number("ended")),
        )

    def is_older_copy(self, exported: str) -> bool:
        """Return whether this file is an older copy: ``exported`` was acknowledged before its export, but is not in the
        journal, although no recovery has lost a trajectory."""
        return not self._query("SELECT 1 FROM trajectories WHERE trajectory = ?", exported) and not self._number("lost")

    def iterate_payloads(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield the id of each trajectory with a stored payload, oldest first, and a function that reads it.

        The function raises JournalError for a payload whose key is damaged.
        """
        for (name,) in self._query("SELECT trajectory FROM payloads ORDER BY rowid"):
            yield name, lambda name=name: self._read_payload(name)

    def _read_payload(self, name: str) -> bytes:
        found = self._query("SELECT blob FROM payloads WHERE trajectory = ?", name)
        if not found:  # the index by which it is looked up has another key than the table
            raise JournalError(damage_message(self.path, f"the payload of {name!r} cannot be found by its key"))
        return found[0][0]

    def store_owner_value(self, key: str, value: int | str) -> None:
        """Store a small value of the journal's owner under ``owner.key``."""
        with self._transaction():
            self._set(f"owner.{key}", value)

    def read_owner_value(self, key: str) -> int | str | None:
        return cast("int | str | None", self._get(f"owner.{key}"))
