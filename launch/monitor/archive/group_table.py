"""Groups as columns, from their members' rows and from what the buffer's events say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from launch.monitor.api_types import GroupRow
from launch.monitor.archive.catalog import GroupFacts, RunCatalog
from launch.monitor.archive.step_table import finite_or_none
from launch.monitor.archive.trajectory_table import BUFFERED, DROPPED, TRAINED, UNKNOWN, Array
from launch.monitor.run_state.sanitize import sanitize_text
from protocol.groups import GroupOutcome


class GroupTable(NamedTuple):
    """Ascending by number; columns of equal length.  Rewards are NaN where no member has arrived."""

    group: Array
    arrived: Array
    mean: Array
    low: Array
    high: Array
    passed: Array
    sampled: Array
    step: Array
    """The last step that used one of its members; −1 if none did."""
    state: Array
    """The state, named as in :class:`launch.monitor.api_types.GroupRow`."""


def build_group_table(catalog: RunCatalog) -> GroupTable:
    """All groups."""
    rows = catalog.trajectories
    known = np.union1d(rows["group"], np.fromiter(catalog.groups, np.int64, len(catalog.groups)))
    place, count = np.searchsorted(known, rows["group"]), len(known)

    def total(values: Array) -> Array:
        return np.bincount(place, values, count)

    arrived = np.bincount(place, minlength=count)
    low, high, step = np.full(count, np.inf), np.full(count, -np.inf), np.full(count, UNKNOWN, np.int64)
    np.minimum.at(low, place, rows["reward"])
    np.maximum.at(high, place, rows["reward"])
    np.maximum.at(step, place, rows["step"])
    empty = arrived == 0
    low[empty] = high[empty] = np.nan
    mean = np.divide(total(rows["reward"]), arrived, out=np.full(count, np.nan), where=~empty)
    states = [np.bincount(place[rows["state"] == each], minlength=count) for each in (BUFFERED, TRAINED, DROPPED)]
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
    held, trained, dropped = states
    open_ = np.fromiter(
        (_facts(catalog, group).outcome == GroupOutcome.OPEN and not catalog.ended for group in known.tolist()),
        np.bool_,
        len(known),
    )
    left = "dropped" if catalog.ended else "buffered"
    named = [open_, (dropped == arrived), (trained == arrived), (held == arrived)]
    return np.select(named, ["open", "dropped", "trained", left], "mixed")


def _facts(catalog: RunCatalog, group: int) -> GroupFacts:
    """Return the group as closed although no event says so: the journal exports before it tells."""
    return catalog.groups.get(group) or _CLOSED


_CLOSED = GroupFacts(outcome=GroupOutcome.READY.value)


def group_rows(catalog: RunCatalog, table: GroupTable, places: Sequence[int]) -> list[GroupRow]:
    return [group_row(catalog, table, place) for place in places]


def group_row(catalog: RunCatalog, table: GroupTable, place: int) -> GroupRow:
    group, step = int(table.group[place]), int(table.step[place])
    facts, members, rows = _facts(catalog, group), catalog.group_rows(group), catalog.trajectories
    task = rows.task_of(members[0]) if members else facts.task
    reasons = Counter(rows.drop_reason_of(row) for row in members if rows.integer_at("state", row) == DROPPED)
    return GroupRow(
        group=group,
        task=sanitize_text(task),
        size=max(facts.size, len(members)),
        arrived=int(table.arrived[place]),
        outcome=facts.outcome,
        state=str(table.state[place]),
        reasons=dict(reasons),
        step=None if step == UNKNOWN else step,
        reward_mean=finite_or_none(table.mean[place]),
        reward_min=finite_or_none(table.low[place]),
        reward_max=finite_or_none(table.high[place]),
        passed=int(table.passed[place]),
        sampled=int(table.sampled[place]),
        opened_at=facts.opened_at,
        closed_at=facts.closed_at,
    )
