"""The list of acknowledged trajectories, with the filters and orders of the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from launch.monitor.api_types import ResultPage, TrajectoryRow, TrajectoryState
from launch.monitor.archive import query
from launch.monitor.archive.catalog import RunCatalog
from launch.monitor.archive.query_parameters import TRAJECTORY_LIST
from launch.monitor.tui.drawing import styles
from launch.monitor.tui.views import search_line
from launch.monitor.tui.views.base import GroupRequested, TrajectoryRequested
from launch.monitor.tui.views.listing import STRETCHED, ListColumn, Listing
from protocol.cli import formatting

_STATES = ("", *TrajectoryState)
_COLUMNS: Sequence[ListColumn[TrajectoryRow]] = (
    ListColumn("trajectory", 11, lambda row: row.id.removeprefix("train-")),
    ListColumn("task", STRETCHED, lambda row: row.task),
    ListColumn("state", 13, lambda row: styles.render_state(row.state, row.reason)),
    ListColumn("ended by", 13, lambda row: formatting.humanize_name(row.status)),
    ListColumn("reward", 6, lambda row: styles.render_reward(row.reward)),
    ListColumn("", 1, lambda row: styles.render_passed(row.passed)),
    ListColumn("tokens", 6, lambda row: f"{row.sampled:,}"),
    ListColumn("step", 5, lambda row: formatting.MISSING if row.step is None else str(row.step)),
    ListColumn("advantage", 9, lambda row: formatting.format_decimal(row.advantage), wide=True),
    ListColumn("gap", 7, lambda row: formatting.format_short(row.logprob_gap), wide=True),
    ListColumn("at", 8, lambda row: formatting.format_time_of_day(row.at), wide=True),
)


class TrajectoryList(Listing[TrajectoryRow]):
    """The list of trajectories."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "state", "State"),
        Binding("w", "worst", "Worst"),
        Binding("u", "group", "Group"),
    ]
    SORTS = query.TRAJECTORY_SORTS
    HINT = (
        "words, filters: step=last state=dropped status=… reason=… task=… passed=false reward_max=0.5 sampled_min=100"
    )
    NOUN = "trajectories"

    def columns(self) -> Sequence[ListColumn[TrajectoryRow]]:
        return _COLUMNS

    def key(self, row: TrajectoryRow) -> str:
        return row.id

    def read(self, words: str, sort: str, cursor: str | None, limit: int) -> ResultPage[TrajectoryRow]:
        def found(catalog: RunCatalog) -> ResultPage[TrajectoryRow]:
            criteria = search_line.parse_search(words, TRAJECTORY_LIST, query.newest_step(catalog))
            return query.list_trajectories(catalog, criteria, search_line.build_page_request(sort, cursor, limit))

        return self.follower.query_catalog(found)

    def open(self, row: TrajectoryRow) -> None:
        self.post_message(TrajectoryRequested(row.id))

    def action_state(self) -> None:
        """Filter by the next state, and keep the other filters."""
        kept = [word for word in self.words.split() if not word.startswith("state=")]
        current = next((word.removeprefix("state=") for word in self.words.split() if word.startswith("state=")), "")
        state = _STATES[(_STATES.index(current) + 1) % len(_STATES)] if current in _STATES else ""
        self.search(" ".join([*kept, *([f"state={state}"] if state else [])]))

    def action_worst(self) -> None:
        self.search("step=last", "worst")

    def action_group(self) -> None:
        if (row := self.chosen) is not None:
            self.post_message(GroupRequested(row.group))
