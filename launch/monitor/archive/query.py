"""Filters, sorts and pages the tables of a catalog.  Pure.

Every order is by one number and then by arrival, so that a cursor (the two numbers of a page's last row) stays valid
while rows are added and change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from launch.monitor.api_types import GroupRow, MetricColumns, ResultPage, StepRow, TrajectoryRow, TrajectoryState
from launch.monitor.archive.catalog import RunCatalog
from launch.monitor.archive.group_table import GroupTable, build_group_table, group_row
from launch.monitor.archive.step_table import finite_or_none
from launch.monitor.archive.trajectory_table import BUFFERED, DROPPED, UNKNOWN, Array
from protocol.plain_text import sanitize_text
from protocol.trajectory import DropReason, make_trajectory_id
from protocol.weights import format_version

STATES = (TrajectoryState.BUFFERED, TrajectoryState.TRAINED, TrajectoryState.DROPPED)
"""Indexed by the value of the column ``state``."""
TRAJECTORY_SORTS = ("newest", "oldest", "worst", "best", "longest", "shortest", "logprob_gap")
GROUP_SORTS = ("newest", "oldest", "worst", "best", "spread")
RUN_ENDED = DropReason.RUN_ENDED.value


@dataclass(frozen=True, slots=True)
class ValueRange:
    """A range of values, bounds included."""

    low: float = -np.inf
    high: float = np.inf

    def matches(self, values: Array) -> Array:
        if self == ValueRange():
            return np.ones(len(values), np.bool_)
        return (values >= self.low) & (values <= self.high)


class PageCursor(NamedTuple):
    """The position of a page's last row in the order of the list."""

    value: float
    row: int

    def __str__(self) -> str:
        return f"{self.value!r}:{self.row}"


def parse_page_cursor(text: str) -> PageCursor:
    """Parse the text of a :class:`PageCursor`.  Raises ValueError."""
    value, colon, row = text.partition(":")
    if not colon or not row.lstrip("-").isdigit() or np.isnan(float(value)):
        raise ValueError(f"{text!r} is not a cursor")
    return PageCursor(float(value), int(row))


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The requested page of a list."""

    sort: str = "newest"
    limit: int = 100
    after: PageCursor | None = None


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The requested trajectories or groups; empty fields match everything."""

    step: int | None = None
    group: int | None = None
    states: Sequence[str] = ()
    statuses: Sequence[str] = ()
    reasons: Sequence[str] = ()
    task: str = ""
    words: str = ""
    reward: ValueRange = field(default_factory=ValueRange)
    """Bounds of the reward, of a group the mean one."""
    sampled: ValueRange = field(default_factory=ValueRange)
    passed: bool | None = None


def newest_step(catalog: RunCatalog) -> int | None:
    return catalog.steps.numbers[-1] if catalog.steps.numbers else max(catalog.versions, default=None)


def list_trajectories(catalog: RunCatalog, criteria: RowFilter, request: PageRequest) -> ResultPage[TrajectoryRow]:
    """Return a page of the acknowledged trajectories."""
    matching = np.flatnonzero(_matching(catalog, criteria))
    keys = _trajectory_key(catalog, request.sort)[matching]
    shown, next_, total = _paged(keys, matching, request)
    return ResultPage([build_trajectory_row(catalog, int(row)) for row in shown], next_, total)


def list_groups(catalog: RunCatalog, criteria: RowFilter, request: PageRequest) -> ResultPage[GroupRow]:
    """Return a page of the groups."""
    table = build_group_table(catalog)
    matching = np.flatnonzero(_matching_groups(catalog, table, criteria))
    keys = _group_key(table, request.sort)[matching]
    shown, next_, total = _paged(keys, table.group[matching], request)
    places = np.searchsorted(table.group, shown)
    return ResultPage([group_row(catalog, table, place) for place in places.tolist()], next_, total)


def list_steps(catalog: RunCatalog, request: PageRequest) -> ResultPage[StepRow]:
    """Return a page of the steps, newest first."""
    numbers = np.array(catalog.steps.numbers, np.int64)
    shown, next_, total = _paged(-numbers.astype(np.float64), numbers, request)
    places = (catalog.steps.find_index(int(step)) for step in shown)
    return ResultPage([build_step_row(catalog, place) for place in places if place is not None], next_, total)


def select_metrics(catalog: RunCatalog, *, names: Sequence[str], after: int, points: int) -> MetricColumns:
    """Return metrics of the steps after ``after``, thinned evenly to ``points`` (0: all); all metrics without
    ``names``."""
    steps = catalog.steps
    chosen = steps.thinned_indices(after, points)
    known = sorted(steps.columns)
    return MetricColumns(
        [steps.numbers[index] for index in chosen],
        {name: [steps.metric_at(index, name) for index in chosen] for name in names or known},
        known,
    )


def find_group(catalog: RunCatalog, number: int) -> GroupRow | None:
    """Return a group's row; None if there is no such group."""
    table = build_group_table(catalog)
    place = int(np.searchsorted(table.group, number))
    known = place < len(table.group) and int(table.group[place]) == number
    return group_row(catalog, table, place) if known else None


def _paged(keys: Array, rows: Array, request: PageRequest) -> tuple[Array, str | None, int]:
    """Return the rows of the page by ascending ``keys``, the next page's cursor, and the number of all rows."""
    total = len(rows)
    if request.after is not None:
        value, row = request.after
        behind = (keys > value) | ((keys == value) & (rows > row))
        keys, rows = keys[behind], rows[behind]
    order = np.lexsort((rows, keys))[: request.limit]
    shown = rows[order]
    left = len(rows) > len(order)
    next_ = str(PageCursor(float(keys[order[-1]]), int(shown[-1]))) if left and len(order) else None
    return shown, next_, total


def _trajectory_key(catalog: RunCatalog, sort: str) -> Array:
    rows, arrival = catalog.trajectories, np.arange(catalog.trajectories.count, dtype=np.float64)
    by: Mapping[str, Array] = {
        "newest": -arrival,
        "oldest": arrival,
        "worst": rows["reward"],
        "best": -rows["reward"],
        "longest": -rows["sampled"].astype(np.float64),
        "shortest": rows["sampled"].astype(np.float64),
        "logprob_gap": -rows["logprob_gap"].astype(np.float64),
    }
    return np.nan_to_num(by[sort], nan=np.inf, posinf=np.inf, neginf=-np.inf)


def _group_key(table: GroupTable, sort: str) -> Array:
    by: Mapping[str, Array] = {
        "newest": -table.group.astype(np.float64),
        "oldest": table.group.astype(np.float64),
        "worst": table.mean,
        "best": -table.mean,
        "spread": table.low - table.high,
    }
    return np.nan_to_num(by[sort], nan=np.inf, posinf=np.inf, neginf=-np.inf)


def _matching(catalog: RunCatalog, criteria: RowFilter) -> Array:
    rows = catalog.trajectories
    keep = criteria.reward.matches(rows["reward"]) & criteria.sampled.matches(rows["sampled"])
    if criteria.step is not None:
        keep &= rows["step"] == criteria.step
    if criteria.group is not None:
        keep &= rows["group"] == criteria.group
    if criteria.passed is not None:
        keep &= rows["passed"] == int(criteria.passed)
    if criteria.statuses:
        keep &= np.isin(rows["status"], rows.texts["status"].find_numbers(criteria.statuses))
    if criteria.states:
        keep &= np.isin(_states(catalog), [STATES.index(TrajectoryState(state)) for state in criteria.states])
    if criteria.reasons:
        keep &= _has_reason(catalog, criteria.reasons)
    if criteria.task:
        keep &= _has_task(catalog, criteria.task)
    if criteria.words:
        keep &= _has_words(catalog, criteria.words)
    return keep


def _states(catalog: RunCatalog) -> Array:
    state = catalog.trajectories["state"]
    return np.where(state == BUFFERED, DROPPED, state) if catalog.ended else state


def _has_reason(catalog: RunCatalog, reasons: Sequence[str]) -> Array:
    rows = catalog.trajectories
    keep = (rows["state"] == DROPPED) & np.isin(rows["reason"], rows.texts["reason"].find_numbers(reasons))
    return keep | (rows["state"] == BUFFERED) if catalog.ended and RUN_ENDED in reasons else keep


def _has_task(catalog: RunCatalog, part: str) -> Array:
    names, part = catalog.trajectories.texts["task"].strings, part.casefold()
    return np.isin(
        catalog.trajectories["task"], [number for number, name in enumerate(names) if part in name.casefold()]
    )


def _has_words(catalog: RunCatalog, words: str) -> Array:
    """Match the task's name or the trajectory id."""
    keep, rows = _has_task(catalog, words), catalog.trajectories
    ids = np.fromiter(
        (
            words in make_trajectory_id(group, sample)
            for group, sample in zip(rows["group"].tolist(), rows["sample"].tolist(), strict=True)
        ),
        np.bool_,
        rows.count,
    )
    return keep | ids


def _matching_groups(catalog: RunCatalog, table: GroupTable, criteria: RowFilter) -> Array:
    keep = criteria.reward.matches(table.mean)
    if criteria.step is not None:
        keep &= table.step == criteria.step
    if criteria.states:
        keep &= np.isin(table.state, list(criteria.states))
    if criteria.reasons:
        members = catalog.trajectories["group"][_has_reason(catalog, criteria.reasons)]
        keep &= np.isin(table.group, members)
    if criteria.words.isdecimal():
        return keep & (table.group == int(criteria.words[:15]))
    for part in filter(None, (criteria.task, criteria.words)):
        named = catalog.trajectories["group"][_has_task(catalog, part)]
        matching = [group for group, facts in catalog.groups.items() if part.casefold() in facts.task.casefold()]
        keep &= np.isin(table.group, np.union1d(named, np.array(matching, np.int64)))
    return keep


def build_trajectory_row(catalog: RunCatalog, row: int) -> TrajectoryRow:
    rows = catalog.trajectories
    group, sample, attempt = (rows.integer_at(name, row) for name in ("group", "sample", "attempt"))
    name, state, passed = (
        make_trajectory_id(group, sample),
        STATES[rows.integer_at("state", row)],
        rows.integer_at("passed", row),
    )
    reason = rows.text_at("reason", row)
    if state is TrajectoryState.BUFFERED and catalog.ended:
        state, reason = TrajectoryState.DROPPED, RUN_ENDED
    step = rows.integer_at("step", row)
    return TrajectoryRow(
        id=name,
        group=group,
        sample=sample,
        task=sanitize_text(rows.text_at("task", row)),
        state=state,
        reason=reason,
        status=rows.text_at("status", row),
        reward=rows.float_at("reward", row),
        passed=None if passed == UNKNOWN else bool(passed),
        tokens=rows.integer_at("tokens", row),
        sampled=rows.integer_at("sampled", row),
        step=None if step == UNKNOWN else step,
        advantage=finite_or_none(rows.float_at("advantage", row)),
        logprob_gap=finite_or_none(rows.float_at("logprob_gap", row)),
        at=finite_or_none(rows.float_at("at", row)),
        attempt=attempt,
        recording=f"{name}-a{attempt}",
    )


def build_step_row(catalog: RunCatalog, index: int) -> StepRow:
    steps = catalog.steps
    step = steps.numbers[index]
    version = catalog.versions.get(step)

    def value(name: str) -> float | None:
        return steps.metric_at(index, name)

    return StepRow(
        step=step,
        at=value("t") or 0.0,
        groups=int(value("groups") or 0),
        trained=int(value("trained_trajectories") or 0),
        dropped=steps.dropped[index],
        reward_mean=value("reward_mean"),
        pass_rate=value("pass_rate"),
        loss=value("loss"),
        staleness_max=value("staleness_max"),
        trained_share=value("trained_share"),
        wait_s=value("wait_s"),
        step_s=value("step_s"),
        version="" if version is None else format_version(version),
    )
