"""Builds the table of groups from their members' rows and the buffer's events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from launch.monitor.api_types import GroupRow
from launch.monitor.archive.catalog import GroupFacts, RunCatalog
from launch.monitor.archive.step_table import finite_or_none
from launch.monitor.archive.trajectory_table import BUFFERED, DROPPED, TRAINED, UNKNOWN, Array
from protocol.groups import GroupOutcome
from protocol.plain_text import sanitize_text


class GroupTable(NamedTuple):
    """Columns of equal length, ascending by group.  Rewards are NaN if no member has arrived."""

    group: Array
    arrived: Array
    mean: Array
    low: Array
    high: Array
    passed: Array
    sampled: Array
    step: Array
    """Last step that used a member; −1 if none did."""
    state: Array
    """State as in :class:`launch.monitor.api_types.GroupRow`."""


def build_group_table(catalog: RunCatalog) -> GroupTable:
    """Return the table of all groups."""
    rows = catalog.trajectories
    known = np.union1d(rows["group"], np.fromiter(catalog.groups, np.int64, len(catalog.groups)))
    index, count = np.searchsorted(known, rows["group"]), len(known)

    def total(values: Array) -> Array:
        return np.bincount(index, values, count)

    arrived = np.bincount(index, minlength=count)
    low, high, step = np.full(count, np.inf), np.full(count, -np.inf), np.full(count, UNKNOWN, np.int64)
    np.minimum.at(low, index, rows["reward"])
    np.maximum.at(high, index, rows["reward"])
    np.maximum.at(step, index, rows["step"])
    empty = arrived == 0
    low[empty] = high[empty] = np.nan
    mean = np.divide(total(rows["reward"]), arrived, out=np.full(count, np.nan), where=~empty)
    states = [np.bincount(index[rows["state"] == each], minlength=count) for each in (BUFFERED, TRAINED, DROPPED)]
    return GroupTable(
        known,
        arrived,
        mean,
        low,
        high,
        total(rows["passed"] == 1).astype(np.int64),
        total(rows["sampled"]).astype(np.int64),
        step,
        _state_names(catalog, known, arrived, states),
    )


def _state_names(catalog: RunCatalog, known: Array, arrived: Array, states: Sequence[Array]) -> Array:
    buffered, trained, dropped = states
    open_ = np.fromiter(
        (_facts(catalog, group).outcome == GroupOutcome.OPEN and not catalog.ended for group in known.tolist()),
        np.bool_,
        len(known),
    )
    left = "dropped" if catalog.ended else "buffered"
    named = [open_, (dropped == arrived), (trained == arrived), (buffered == arrived)]
    return np.select(named, ["open", "dropped", "trained", left], "mixed")


def _facts(catalog: RunCatalog, group: int) -> GroupFacts:
    """Return the facts of a group; one without events counts as closed, as trajectories are exported before the
    event."""
    return catalog.groups.get(group) or _CLOSED


_CLOSED = GroupFacts(outcome=GroupOutcome.READY.value)


def group_row(catalog: RunCatalog, table: GroupTable, index: int) -> GroupRow:
    group, step = int(table.group[index]), int(table.step[index])
    facts, members, rows = _facts(catalog, group), catalog.group_rows(group), catalog.trajectories
    task = rows.text_at("task", members[0]) if members else facts.task
    reasons = Counter(rows.text_at("reason", row) for row in members if rows.integer_at("state", row) == DROPPED)
    return GroupRow(
        group=group,
        task=sanitize_text(task),
        size=max(facts.size, len(members)),
        arrived=int(table.arrived[index]),
        outcome=facts.outcome,
        state=str(table.state[index]),
        reasons=dict(reasons),
        step=None if step == UNKNOWN else step,
        reward_mean=finite_or_none(table.mean[index]),
        reward_min=finite_or_none(table.low[index]),
        reward_max=finite_or_none(table.high[index]),
        passed=int(table.passed[index]),
        sampled=int(table.sampled[index]),
        opened_at=facts.opened_at,
        closed_at=facts.closed_at,
    )
