"""The list of groups, with their rewards and their use in training."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from launch.monitor.api_types import GroupRow, ResultPage, TrajectoryState
from launch.monitor.archive import query
from launch.monitor.archive.catalog import RunCatalog
from launch.monitor.archive.query_parameters import GROUP_LIST
from launch.monitor.tui.drawing import styles
from launch.monitor.tui.views import search_line
from launch.monitor.tui.views.base import GroupRequested
from launch.monitor.tui.views.listing import STRETCHED, ListColumn, Listing
from protocol.cli import formatting


def _state(row: GroupRow) -> Text:
    reason = next(iter(row.reasons), "") if len(row.reasons) == 1 and row.state == TrajectoryState.DROPPED else ""
    return styles.render_state(row.state, reason)


_COLUMNS: Sequence[ListColumn[GroupRow]] = (
    ListColumn("group", 8, lambda row: str(row.group)),
    ListColumn("task", STRETCHED, lambda row: row.task),
    ListColumn("state", 13, _state),
    ListColumn("arrived", 7, lambda row: f"{row.arrived}/{row.size}"),
    ListColumn("mean", 6, lambda row: styles.render_reward(row.reward_mean)),
    ListColumn(
        "min … max",
        12,
        lambda row: f"{formatting.format_decimal(row.reward_min)} … {formatting.format_decimal(row.reward_max)}",
    ),
    ListColumn("passed", 6, lambda row: str(row.passed)),
    ListColumn("step", 5, lambda row: formatting.MISSING if row.step is None else str(row.step)),
    ListColumn("sampled", 9, lambda row: f"{row.sampled:,}", wide=True),
    ListColumn("opened", 8, lambda row: formatting.format_time_of_day(row.opened_at), wide=True),
    ListColumn("closed", 8, lambda row: formatting.format_time_of_day(row.closed_at), wide=True),
)


class GroupList(Listing[GroupRow]):
    """The list of groups."""

    SORTS = query.GROUP_SORTS
    HINT = "group number or words, filters: step=last state=open reason=… task=… reward_max=0.5"
    NOUN = "groups"

    def columns(self) -> Sequence[ListColumn[GroupRow]]:
        return _COLUMNS

    def key(self, row: GroupRow) -> str:
        return str(row.group)

    def read(self, words: str, sort: str, cursor: str | None, limit: int) -> ResultPage[GroupRow]:
        def found(catalog: RunCatalog) -> ResultPage[GroupRow]:
            criteria = search_line.parse_search(words, GROUP_LIST, query.newest_step(catalog))
            return query.list_groups(catalog, criteria, search_line.build_page_request(sort, cursor, limit))

        return self.follower.query_catalog(found)

    def open(self, row: GroupRow) -> None:
        self.post_message(GroupRequested(row.group))
