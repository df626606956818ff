"""Every acknowledged trajectory, by the filters and the orders that the API has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from launch.monitor.archive import query
from launch.monitor.archive.catalog import Catalog
from launch.monitor.shapes import Page, State, TrajectoryRow
from launch.monitor.tui import asking, words
from launch.monitor.tui.listing import STRETCHED, Column, Listing
from launch.monitor.tui.view import OpenGroup, OpenTrajectory

_STATES = ("", *State)
_COLUMNS: Sequence[Column[TrajectoryRow]] = (
    Column("trajectory", 11, lambda row: row.id.removeprefix("train-")),
    Column("task", STRETCHED, lambda row: row.task),
    Column("state", 13, lambda row: words.state(row.state, row.reason)),
    Column("ended by", 13, lambda row: words.spoken(row.status)),
    Column("reward", 6, lambda row: words.reward(row.reward)),
    Column("", 1, lambda row: words.passed(row.passed)),
    Column("tokens", 6, lambda row: f"{row.sampled:,}"),
    Column("step", 5, lambda row: words.NONE if row.step is None else str(row.step)),
    Column("advantage", 9, lambda row: words.decimal(row.advantage), wide=True),
    Column("gap", 7, lambda row: words.short(row.gap), wide=True),
    Column("at", 8, lambda row: words.moment(row.at), wide=True),
)


class Trajectories(Listing[TrajectoryRow]):
    """See the module."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "state", "State"),
        Binding("w", "worst", "Worst"),
        Binding("u", "group", "Group"),
    ]
    SORTS = query.TRAJECTORY_SORTS
    HINT = "words, and step=last state=dropped status=… reason=… task=… passed=false reward_max=0.5 sampled_min=100"
    NOUN = "trajectories"

    def columns(self) -> Sequence[Column[TrajectoryRow]]:
        return _COLUMNS

    def key(self, row: TrajectoryRow) -> str:
        return row.id

    def read(self, asked: str, sort: str, cursor: str | None, limit: int) -> Page[TrajectoryRow]:
        def found(catalog: Catalog) -> Page[TrajectoryRow]:
            wanted = asking.trajectory_filter(asked, query.last_step(catalog))
            return query.trajectories(catalog, wanted, asking.part(sort, cursor, limit))

        return self.follower.ask(found)

    def open(self, row: TrajectoryRow) -> None:
        self.post_message(OpenTrajectory(row.id))

    def action_state(self) -> None:
        """The next state; what else is asked for stays."""
        kept = [word for word in self.words.split() if not word.startswith("state=")]
        here = next((word.removeprefix("state=") for word in self.words.split() if word.startswith("state=")), "")
        wanted = _STATES[(_STATES.index(here) + 1) % len(_STATES)] if here in _STATES else ""
        self.ask(" ".join([*kept, *([f"state={wanted}"] if wanted else [])]))

    def action_worst(self) -> None:
        self.ask("step=last", "worst")

    def action_group(self) -> None:
        if (row := self.chosen) is not None:
            self.post_message(OpenGroup(row.group))
