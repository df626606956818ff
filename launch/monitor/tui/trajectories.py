"""Every acknowledged trajectory, by the filters and the orders that the API has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from launch.monitor.archive import query
from launch.monitor.archive.catalog import RunCatalog
from launch.monitor.shapes import ResultPage, TrajectoryRow, TrajectoryState
from launch.monitor.tui import asking, words
from launch.monitor.tui.listing import STRETCHED, ListColumn, Listing
from launch.monitor.tui.view import GroupRequested, TrajectoryRequested

_STATES = ("", *TrajectoryState)
_COLUMNS: Sequence[ListColumn[TrajectoryRow]] = (
    ListColumn("trajectory", 11, lambda row: row.id.removeprefix("train-")),
    ListColumn("task", STRETCHED, lambda row: row.task),
    ListColumn("state", 13, lambda row: words.render_state(row.state, row.reason)),
    ListColumn("ended by", 13, lambda row: words.humanize_name(row.status)),
    ListColumn("reward", 6, lambda row: words.render_reward(row.reward)),
    ListColumn("", 1, lambda row: words.render_passed(row.passed)),
    ListColumn("tokens", 6, lambda row: f"{row.sampled:,}"),
    ListColumn("step", 5, lambda row: words.MISSING if row.step is None else str(row.step)),
    ListColumn("advantage", 9, lambda row: words.format_decimal(row.advantage), wide=True),
    ListColumn("gap", 7, lambda row: words.format_short(row.gap), wide=True),
    ListColumn("at", 8, lambda row: words.format_time_of_day(row.at), wide=True),
)


class TrajectoryList(Listing[TrajectoryRow]):
    """See the module."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "state", "State"),
        Binding("w", "worst", "Worst"),
        Binding("u", "group", "Group"),
    ]
    SORTS = query.TRAJECTORY_SORTS
    HINT = "words, and step=last state=dropped status=… reason=… task=… passed=false reward_max=0.5 sampled_min=100"
    NOUN = "trajectories"

    def columns(self) -> Sequence[ListColumn[TrajectoryRow]]:
        return _COLUMNS

    def key(self, row: TrajectoryRow) -> str:
        return row.id

    def read(self, asked: str, sort: str, cursor: str | None, limit: int) -> ResultPage[TrajectoryRow]:
        def found(catalog: RunCatalog) -> ResultPage[TrajectoryRow]:
            wanted = asking.parse_trajectory_search(asked, query.newest_step(catalog))
            return query.list_trajectories(catalog, wanted, asking.build_page_request(sort, cursor, limit))

        return self.follower.query_catalog(found)

    def open(self, row: TrajectoryRow) -> None:
        self.post_message(TrajectoryRequested(row.id))

    def action_state(self) -> None:
        """The next state; what else is asked for stays."""
        kept = [word for word in self.words.split() if not word.startswith("state=")]
        here = next((word.removeprefix("state=") for word in self.words.split() if word.startswith("state=")), "")
        wanted = _STATES[(_STATES.index(here) + 1) % len(_STATES)] if here in _STATES else ""
        self.search(" ".join([*kept, *([f"state={wanted}"] if wanted else [])]))

    def action_worst(self) -> None:
        self.search("step=last", "worst")

    def action_group(self) -> None:
        if (row := self.chosen) is not None:
            self.post_message(GroupRequested(row.group))
