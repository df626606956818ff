"""Closing of groups without running samples, by the rules of :mod:`protocol.groups`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from protocol.groups import OUTCOME_DROP_REASONS, GroupOutcome, decide_group_outcome
from protocol.journal.batched_sql import placeholders, statement_batches
from protocol.journal.store import JournalStore
from protocol.journal.values import ClosedGroup
from protocol.trajectory import GroupId


class GroupClosing(JournalStore):
    """Base of the operations that may close a group."""

    def _close_complete(self, groups: Sequence[GroupId]) -> list[ClosedGroup]:
        """Close those of ``groups`` that wait for no sample, in this order."""
        return [closing for some in statement_batches(groups) for closing in self._close(self._closings(some))]

    def _close(self, closings: list[ClosedGroup]) -> list[ClosedGroup]:
        if closings:
            self._db.execute(
                f"WITH closing (group_id, how, seq) AS (VALUES {placeholders(len(closings), 3)}) "  # noqa: S608  question marks
                "UPDATE groups SET outcome = how, closed_seq = seq FROM closing WHERE id = group_id",
                [value for each in closings for value in (each.group, each.outcome.value, each.seq)],
            )
        for outcome, reason in OUTCOME_DROP_REASONS.items():
            if dropped := [each.group for each in closings if each.outcome is outcome]:
                self._db.execute(
                    "UPDATE trajectories SET state = 'dropped', reason = ? "  # noqa: S608  question marks
                    f"WHERE group_id IN {placeholders(len(dropped))}",
                    (reason.value, *dropped),
                )
        return closings

    def _closings(self, groups: Sequence[GroupId]) -> list[ClosedGroup]:
        awaited = "SELECT 1 FROM rollout_requests WHERE group_id = id AND state = 'running'"
        found = self._query(
            f"SELECT id, task, size FROM groups WHERE id IN {placeholders(len(groups))} AND NOT EXISTS ({awaited})",  # noqa: S608  question marks
            *groups,
        )
        if not found:
            return []
        complete = {group: (task, size) for group, task, size in found}
        rewards, passed = self._rewards(complete)
        abandoned, seq = self._abandoned(complete), self._closed()
        closed: list[ClosedGroup] = []
        for group in (each for each in groups if each in complete):
            task, size = complete[group]
            outcome = decide_group_outcome(
                size, rewards[group], abandoned[group], dynamic_sampling=self._settings.dynamic_sampling
            )
            if outcome is not GroupOutcome.OPEN:
                seq += 1
                closed.append(ClosedGroup(seq, group, task, outcome, size, rewards[group], frozenset(passed[group])))
        return closed

    def _abandoned(self, groups: Collection[GroupId]) -> dict[GroupId, list[int]]:
        found: dict[GroupId, list[int]] = {group: [] for group in groups}
        query = (
            "SELECT group_id, sample FROM rollout_requests "  # noqa: S608  question marks
            f"WHERE group_id IN {placeholders(len(groups))} AND state = 'abandoned'"
        )
        for group, sample in self._query(query, *groups):
            found[group].append(sample)
        return found

    def _rewards(self, groups: Collection[GroupId]) -> tuple[dict[GroupId, dict[int, float]], dict[GroupId, set[int]]]:
        """Return for each group the rewards by sample, in order, and the samples that passed."""
        rewards: dict[GroupId, dict[int, float]] = {group: {} for group in groups}
        passed: dict[GroupId, set[int]] = {group: set() for group in groups}
        query = (
            "SELECT group_id, sample, reward, passed FROM trajectories "  # noqa: S608  question marks
            f"WHERE group_id IN {placeholders(len(groups))} ORDER BY group_id, sample"
        )
        for group, sample, reward, has_passed in self._query(query, *groups):
            rewards[group][sample] = reward
            if has_passed:
                passed[group].add(sample)
        return rewards, passed

    def _forget_dropped(self) -> None:
        """Delete the payloads of groups that were dropped on closing since the last call."""
        before, last = self._number("forgotten"), self._closed()
        if last > before:
            self._db.execute(
                "DELETE FROM payloads WHERE trajectory IN (SELECT trajectory "
                "FROM groups CROSS JOIN trajectories ON group_id = id "
                "WHERE closed_seq > ? AND state = 'dropped' AND step IS NULL)",
                (before,),
            )
            self._set("forgotten", last)
