"""Compares the members of a group side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Static

from launch.monitor.api_types import GroupDetail, GroupMemberDetail
from launch.monitor.run_follower import RunFollower
from launch.monitor.tui.drawing import styles
from launch.monitor.tui.drawing.styles import BAD, QUIET
from launch.monitor.tui.views.base import MonitorView, TrajectoryRequested
from protocol.cli import formatting

_CELL = 16


class GroupMemberTable(DataTable[Text]):
    """A column for each member."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Open"),
        Binding("l", "cursor_right", "Right", show=False),
        Binding("h", "cursor_left", "Left", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(cursor_type="column", fixed_columns=1, zebra_stripes=True)


class GroupView(MonitorView):
    """The members of one group."""

    DEFAULT_CSS = """
    GroupView > Static { height: auto; padding: 1 2; }
    GroupView > DataTable { height: 1fr; }
    """

    def __init__(self, follower: RunFollower, group: int) -> None:
        super().__init__(follower)
        self.group = group
        self._shown: GroupDetail | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="facts")
        yield GroupMemberTable()

    async def load(self) -> None:
        found = await asyncio.to_thread(self.follower.group, self.group)
        if found is None:
            self.show_error(f"there is no group {self.group} in {self.follower.name}")
        elif found != self._shown:
            self._shown = found
            self.query_one("#facts", Static).update(render_group_heading(found))
            self._fill(found)

    def show_error(self, line: str) -> None:
        self.query_one("#facts", Static).update(Text(line, BAD))

    def _fill(self, found: GroupDetail) -> None:
        table = self.query_one(GroupMemberTable)
        at = max(1, table.cursor_column)
        table.clear(columns=True)
        table.add_column("")
        for each in found.members:
            table.add_column(Text(f"sample {each.row.sample}", "bold"), key=each.row.id)
        for title, cells in compare_members(found.members):
            table.add_row(Text(title, QUIET), *cells)
        table.move_cursor(column=at)

    def on_data_table_column_selected(self, event: DataTable.ColumnSelected) -> None:
        if (name := event.column_key.value) is not None:
            self.post_message(TrajectoryRequested(name))


def render_group_heading(found: GroupDetail) -> Text:
    """Return the facts that all members share.  Pure."""
    row = found.row
    parts: list[str | Text | tuple[str, str]] = [
        (f"group {row.group}  ", "bold"), f"{row.task}  ", styles.render_state(row.state),
        (f"  closed as {formatting.humanize_name(row.outcome)}, {row.arrived} of {row.size} arrived", QUIET),
        ("" if row.step is None else f", step {row.step}", QUIET),
        "\nreward ", styles.render_reward(row.reward_mean),
        (f"  from {formatting.format_decimal(row.reward_min)} to {formatting.format_decimal(row.reward_max)}", QUIET),
        (f", {row.passed} passed", QUIET),
    ]  # fmt: skip
    if row.reasons:
        reasons = ", ".join(f"{count} {formatting.humanize_name(reason)}" for reason, count in row.reasons.items())
        parts.append((f"  dropped: {reasons}", BAD))
    if found.missing:
        parts.append((f"  missing: {', '.join(map(str, found.missing[:16]))}", styles.WARN))
    return Text.assemble(*parts)


def compare_members(members: Sequence[GroupMemberDetail]) -> list[tuple[str, list[Text]]]:
    """Return lines of a title and a cell for each member.  Pure."""
    lines: list[tuple[str, Callable[[GroupMemberDetail], Text]]] = [
        ("state", lambda each: styles.render_state(each.row.state, each.row.reason)),
        ("ended by", lambda each: Text(formatting.humanize_name(each.row.status))),
        ("reward", lambda each: styles.render_reward(each.row.reward)),
        *((f"  {name}", _named(lambda each: each.parts, name)) for name in _names(members, lambda each: each.parts)),
        ("advantage", lambda each: Text(formatting.format_decimal(each.row.advantage, 3))),
        ("passed", lambda each: styles.render_passed(each.row.passed)),
        ("tests", lambda each: Text(f"{each.tests_passed}/{each.tests}")),
        ("turns", lambda each: Text(str(each.turns))),
        ("tokens sampled", lambda each: Text(f"{each.row.sampled:,}")),
        ("log-prob gap", lambda each: Text(formatting.format_short(each.row.logprob_gap))),
        *((f"  {name}", _time(name)) for name in _names(members, lambda each: each.ms)),
        ("error", lambda each: Text(formatting.truncate_text(_problem(each), _CELL), BAD)),
    ]
    return [(title, [cell(each) for each in members]) for title, cell in lines]


def _problem(each: GroupMemberDetail) -> str:
    return "cannot be read" if each.problem else formatting.one_line(each.error)


def _names(members: Sequence[GroupMemberDetail], of: Callable[[GroupMemberDetail], Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for each in members for name in of(each)))


def _named(of: Callable[[GroupMemberDetail], Mapping[str, float]], name: str) -> Callable[[GroupMemberDetail], Text]:
    return lambda each: Text(formatting.format_decimal(of(each).get(name)))


def _time(name: str) -> Callable[[GroupMemberDetail], Text]:
    return lambda each: Text(formatting.format_milliseconds(each.ms.get(name)), QUIET)
