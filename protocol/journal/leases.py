"""The learner's side: leases, the step that used each trajectory, checkpoints, resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protocol.journal.lost_payloads import forget_lost_payloads
from protocol.journal.payload_check import is_acknowledged
from protocol.journal.schema import PASSED_OVER, TRAINED
from protocol.journal.store import JournalStore, damage_message
from protocol.journal.values import BatchLease, JournalError, LeasedGroup, LeasedTrajectory
from protocol.trajectory import DropReason, GroupId


class LeaseOperations(JournalStore):
    """Leases whole groups, oldest first; each is used once per lineage."""

    def lease_batch(self, groups: int) -> BatchLease | None:
        """Return the ``groups`` ready groups that were opened first, so have the oldest tokens; None while there are
        fewer.

        Changes nothing: until :meth:`mark_trained`, the same call returns the same groups unless an older one closes.
        """
        if self._number("ended"):
            return None
        oldest = self._query(
            "SELECT id, task, size FROM groups WHERE outcome = 'ready' AND used = 0 ORDER BY id LIMIT ?",
            groups,
        )
        if len(oldest) < groups:
            return None
        return BatchLease(
            tuple(
                LeasedGroup(
                    GroupId(group),
                    task,
                    size,
                    tuple(
                        LeasedTrajectory(*row)
                        for row in self._query(
                            "SELECT trajectory, sample, reward, bytes FROM trajectories "
                            "WHERE group_id = ? ORDER BY sample",
                            group,
                        )
                    ),
                )
                for group, task, size in sorted(oldest)
            )
        )

    def read_payloads(self, lease: BatchLease) -> list[bytes]:
        """Return the packed blobs of ``lease``, by (group, sample).  Raises JournalError for one that is missing or
        damaged."""
        blobs: list[bytes] = []
        for trajectory in lease.trajectory_ids:
            stored = self._query(
                "SELECT blob, digest FROM payloads JOIN trajectories USING (trajectory) WHERE trajectory = ?",
                trajectory,
            )
            if not stored:
                raise JournalError(f"trajectory {trajectory} of the lease is no longer stored")
            blob, digest = stored[0]
            if not is_acknowledged(blob, digest):
                raise JournalError(damage_message(self.path, f"the bytes of {trajectory} do not match its digest"))
            blobs.append(blob)
        return blobs

    def mark_trained(self, step: int, trained: Sequence[str], dropped: Mapping[str, DropReason]) -> None:
        """Record that optimizer step ``step`` trained ``trained`` and dropped ``dropped``, together whole ready groups.

        If none was trained, no step was taken: the groups are passed over for good, even after a rewind, and others
        fill the step.  Repeating a call changes nothing; any other trajectory that is no longer buffered raises
        JournalError.
        """
        used_at = step if trained else None
        updates: dict[str, tuple[str, int | None, str | None]] = dict.fromkeys(trained, ("trained", used_at, None))
        updates |= {name: ("dropped", used_at, reason.value) for name, reason in dropped.items()}
        if len(updates) != len(trained) + len(dropped):
            raise JournalError(f"step {step} trains and drops the same trajectory, or one twice")
        with self._transaction():
            groups: set[int] = set()
            for name, update in updates.items():
                found = self._query("SELECT group_id, state, step, reason FROM trajectories WHERE trajectory = ?", name)
                if not found or found[0][1:] not in (("buffered", None, None), update):
                    raise JournalError(
                        f"step {step} cannot use trajectory {name}: {found[0][1:] if found else 'unknown'}"
                    )
                groups.add(found[0][0])
                self._db.execute(
                    "UPDATE trajectories SET state = ?, step = ?, reason = ? WHERE trajectory = ?", (*update, name)
                )
                if not trained:
                    self._db.execute("DELETE FROM payloads WHERE trajectory = ?", (name,))
            for group in groups:
                if self._query(
                    "SELECT 1 FROM trajectories WHERE group_id = ? AND state = 'buffered'", group
                ) or not self._query("SELECT 1 FROM groups WHERE id = ? AND outcome = 'ready'", group):
                    raise JournalError(f"step {step} uses part of group {group}, or a group that is not ready")
                self._db.execute(
                    "UPDATE groups SET used = ? WHERE id = ?", (TRAINED if trained else PASSED_OVER, group)
                )

    def commit_checkpoint(self, step: int) -> None:
        """Record that the checkpoint of ``step`` is complete."""
        with self._transaction():
            self._set("committed", max(step, self._number("committed")))

    def compact_payloads(self, oldest_kept_step: int) -> None:
        """Delete the payloads that no kept checkpoint can need: those used up to the oldest one's step."""
        if oldest_kept_step > self._number("committed"):
            raise JournalError(f"no checkpoint of step {oldest_kept_step} is committed")
        with self._transaction():
            self._db.execute(
                "DELETE FROM payloads WHERE trajectory IN (SELECT trajectory FROM trajectories "
                "WHERE step > ? AND step <= ?)",
                (self._number("compacted"), oldest_kept_step),
            )
            self._set("compacted", max(oldest_kept_step, self._number("compacted")))

    def rewind_to_step(self, step: int) -> None:
        """Continue from the checkpoint of ``step``: trajectories that later steps used, dropped or left over are
        buffered again, except those whose payload a recovery has lost."""
        if step < self._number("compacted"):
            raise JournalError(
                f"cannot rewind to step {step}: trajectories up to step {self._number('compacted')} are compacted; "
                "resume from a checkpoint of that step or a later one (one that is there for checkpoint.keep_first, "
                "keep_every_steps or keep_best can only be replayed)"
            )
        with self._transaction():
            self._db.execute(
                "UPDATE groups SET used = 0 WHERE used > 0 AND id IN (SELECT group_id "
                "FROM trajectories WHERE step > ?)",
                (step,),
            )
            self._db.execute(
                "UPDATE trajectories SET state = 'buffered', step = NULL, reason = NULL WHERE step > ?", (step,)
            )
            self._set("committed", min(step, self._number("committed")))
            self._set("ended", 0)
            forget_lost_payloads(self._db)

    def end_run(self) -> None:
        """Drop the remaining trajectories with reason ``run_ended``, as if at the step after the last.

        No group opens and no trajectory is accepted until :meth:`rewind_to_step` undoes it.
        """
        with self._transaction():
            ((last,),) = self._query("SELECT max(step) FROM trajectories")
            self._db.execute(
                "UPDATE trajectories SET state = 'dropped', reason = ?, step = ? WHERE state = 'buffered'",
                (DropReason.RUN_ENDED.value, max(last or 0, self._number("committed")) + 1),
            )
            self._set("ended", 1)
