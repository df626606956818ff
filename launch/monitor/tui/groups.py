"""Every group: how its samples came out, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from launch.monitor.archive import query
from launch.monitor.archive.catalog import Catalog
from launch.monitor.shapes import GroupRow, Page, State
from launch.monitor.tui import asking, words
from launch.monitor.tui.listing import STRETCHED, Column, Listing
from launch.monitor.tui.view import OpenGroup


def _state(row: GroupRow) -> Text:
    reason = next(iter(row.reasons), "") if len(row.reasons) == 1 and row.state == State.DROPPED else ""
    return words.state(row.state, reason)


_COLUMNS: Sequence[Column[GroupRow]] = (
    Column("group", 8, lambda row: str(row.group)),
    Column("task", STRETCHED, lambda row: row.task),
    Column("state", 13, _state),
    Column("here", 5, lambda row: f"{row.arrived}/{row.size}"),
    Column("mean", 6, lambda row: words.reward(row.reward_mean)),
    Column("least … most", 12, lambda row: f"{words.decimal(row.reward_min)} … {words.decimal(row.reward_max)}"),
    Column("passed", 6, lambda row: str(row.passed)),
    Column("step", 5, lambda row: words.NONE if row.step is None else str(row.step)),
    Column("sampled", 9, lambda row: f"{row.sampled:,}", wide=True),
    Column("opened", 8, lambda row: words.moment(row.opened_at), wide=True),
    Column("closed", 8, lambda row: words.moment(row.closed_at), wide=True),
)


class Groups(Listing[GroupRow]):
    """See the module."""

    SORTS = query.GROUP_SORTS
    HINT = "a group's number or words, and step=last state=open reason=… task=… reward_max=0.5"
    NOUN = "groups"

    def columns(self) -> Sequence[Column[GroupRow]]:
        return _COLUMNS

    def key(self, row: GroupRow) -> str:
        return str(row.group)

    def read(self, asked: str, sort: str, cursor: str | None, limit: int) -> Page[GroupRow]:
        def found(catalog: Catalog) -> Page[GroupRow]:
            wanted = asking.group_filter(asked, query.last_step(catalog))
            return query.groups(catalog, wanted, asking.part(sort, cursor, limit))

        return self.follower.ask(found)

    def open(self, row: GroupRow) -> None:
        self.post_message(OpenGroup(row.group))
