"""The workers' side: trajectories arrive."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.journal.closing import Closing
from protocol.journal.values import AppendOutcome, Arrival, GroupClosed


class Arrivals(Closing):
    """Appends, the first of a sample wins."""

    def append(self, arrivals: Sequence[Arrival]) -> tuple[list[AppendOutcome], list[GroupClosed]]:
        """Append a batch in one transaction, durable on return: an outcome per arrival, and the groups it closed.

        Its payloads are stored until the next append or abandonment at least, also those of a group that it drops: the
        caller has that long to export them.
        """
        closed: list[GroupClosed] = []
        with self._transaction():
            self._forget_dropped()
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
            return AppendOutcome.SUPERSEDED if inserted.rowcount else AppendOutcome.SUPERSEDED_AGAIN
        is_open = self._all(
            "SELECT 1 FROM groups JOIN tickets ON grp = id WHERE id = ? AND sample = ? AND outcome = 'open'",
            new.group,
            new.sample,
        )
        if not is_open or self._number("ended"):
            self._add("unknown", 1)
            return AppendOutcome.UNKNOWN
        self._db.execute(
            "INSERT INTO rows (trajectory, grp, sample, bytes, sampled, digest, reward, status) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(new.trajectory, new.group, new.sample, len(new.blob), new.sampled),
                *(new.digest, new.reward, new.status.value),
            ),
        )
        self._db.execute("INSERT INTO payloads VALUES (?, ?)", (new.trajectory, new.blob))
        self._db.execute(
            "UPDATE tickets SET state = 'arrived', reason = NULL WHERE grp = ? AND sample = ?", (new.group, new.sample)
        )
        self._add("acked", 1)
        return AppendOutcome.APPENDED
