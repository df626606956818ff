"""When a group's last outstanding sample is there, or given up: the closing, by the rules of :mod:`protocol.groups`."""

from __future__ import annotations

from protocol.groups import GroupOutcome, group_outcome
from protocol.journal.store import Store
from protocol.journal.values import GroupClosed
from protocol.trajectory import GroupId


class Closing(Store):
    """Shared by those whose calls may close a group."""

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
        return GroupClosed(seq, group, task, outcome, size, rewards)

    def _forget_dropped(self) -> None:
        """The payloads of groups that were dropped as they closed, after the last call of this."""
        before, last = self._number("forgotten"), self._closed()
        if last > before:
            self._db.execute(
                "DELETE FROM payloads WHERE trajectory IN (SELECT trajectory FROM groups CROSS JOIN rows ON grp = id "
                "WHERE closed_seq > ? AND state = 'dropped' AND step IS NULL)",
                (before,),
            )
            self._set("forgotten", last)

    def _rewards(self, group: int) -> dict[int, float]:
        return dict(self._all("SELECT sample, reward FROM rows WHERE grp = ? ORDER BY sample", group))
