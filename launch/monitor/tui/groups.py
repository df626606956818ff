"""Every group: how its samples came out, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from launch.monitor.archive import query
from launch.monitor.archive.catalog import Catalog
from launch.monitor.shapes import GroupRow, Page, State
from launch.monitor.tui import asking, words
from launch.monitor.tui.listing import Column, Listing
from launch.monitor.tui.view import OpenGroup


def _state(row: GroupRow) -> Text:
    reason = next(iter(row.reasons), "") if len(row.reasons) == 1 and row.state == State.DROPPED else ""
    return words.state(row.state, reason)


_COLUMNS: Sequence[Column[GroupRow]] = (
    Column("group", lambda row: str(row.group)),
    Column("task", lambda row: words.cut(row.task, 40)),
    Column("state", _state),
    Column("here", lambda row: f"{row.arrived}/{row.size}"),
    Column("mean", lambda row: words.reward(row.reward_mean), width=6),
    Column("least … most", lambda row: f"{words.decimal(row.reward_min)} … {words.decimal(row.reward_max)}"),
    Column("passed", lambda row: str(row.passed)),
    Column("step", lambda row: words.NONE if row.step is None else str(row.step)),
    Column("sampled", lambda row: f"{row.sampled:,}", wide=True),
    Column("opened", lambda row: words.moment(row.opened_at), wide=True),
    Column("closed", lambda row: words.moment(row.closed_at), wide=True),
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
