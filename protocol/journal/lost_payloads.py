"""Repair of the journal's rows when the payload of a trajectory that is yet to be trained is lost."""

from __future__ import annotations

import sqlite3

from protocol.groups import GroupOutcome, minimum_members
from protocol.trajectory import make_trajectory_id


def forget_lost_payloads(journal: sqlite3.Connection) -> list[str]:
    """Delete buffered trajectories without a payload, within the caller's transaction.

    Returns their ids, and those of all others that had arrived and have no row.  Such a sample is run again if its
    group is open, and counts as abandoned if it has closed: a group with too few members left is dropped.
    """
    held = "DELETE FROM trajectories WHERE state = 'buffered' AND trajectory NOT IN (SELECT trajectory FROM payloads)"
    count_lost(journal, journal.execute(held).rowcount)
    gone: list[tuple[int, int]] = journal.execute(
        "SELECT group_id, sample FROM rollout_requests "
        "WHERE state = 'arrived' EXCEPT SELECT group_id, sample FROM trajectories"
    ).fetchall()
    for group, sample in gone:
        journal.execute(
            "UPDATE rollout_requests SET state = iif((SELECT outcome FROM groups "
            "WHERE id = group_id) = 'open', 'running', 'abandoned') "
            "WHERE group_id = ? AND sample = ?",
            (group, sample),
        )
    _drop_short(journal)
    return [make_trajectory_id(group, sample) for group, sample in gone]


def count_lost(journal: sqlite3.Connection, number: int) -> None:
    """Move ``number`` acknowledged trajectories that no longer exist from the count ``acknowledged`` to ``lost``."""
    journal.execute("UPDATE meta SET value = value - ? WHERE key = 'acknowledged'", (number,))
    journal.execute("INSERT INTO meta VALUES ('lost', ?) ON CONFLICT DO UPDATE SET value = value + ?", (number, number))


def _drop_short(journal: sqlite3.Connection) -> None:
    short = GroupOutcome.TOO_FEW_MEMBERS.value
    ready = (
        "SELECT id, size, (SELECT count(*) FROM trajectories WHERE group_id = id) FROM groups "
        "WHERE outcome = 'ready' AND used = 0"
    )
    for group, size, members in journal.execute(ready).fetchall():
        if members < minimum_members(size):
            journal.execute("UPDATE groups SET outcome = ? WHERE id = ?", (short, group))
            journal.execute("UPDATE trajectories SET state = 'dropped', reason = ? WHERE group_id = ?", (short, group))
            journal.execute("DELETE FROM meta WHERE key = 'forgotten'")  # their payloads go with the next append
