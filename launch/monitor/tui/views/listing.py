"""A long, growing list with search, orders, paging and following.

At its first row a list follows the run, and new rows appear at the top.  Further down it stands still and shows the
number of new rows.  Pages are loaded when they are reached; the store's cursors keep them consistent while the run
goes on.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input, Static

from launch.monitor.api_types import ResultPage
from launch.monitor.archive.query_parameters import InvalidQueryError
from launch.monitor.run_follower import RunFollower
from launch.monitor.tui.drawing.styles import ACCENT, BAD, QUIET, WARN, WIDE
from launch.monitor.tui.views.base import MonitorView

Row = TypeVar("Row")

PAGE_ROWS = 100
_NEAR_END = 20
"""Distance from the last row at which the next page is loaded."""
STRETCHED = 0
"""Width of a column that takes the remaining width."""
_MIN_STRETCHED_WIDTH = 12


@dataclass(frozen=True, slots=True)
class ListColumn(Generic[Row]):
    title: str
    width: int
    cell: Callable[[Row], Text | str]
    wide: bool = False
    """Whether the column is only shown on wide screens."""


class RowTable(DataTable[Text | str]):
    """The table of a list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Open"),
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("g,home", "scroll_top", "First row", show=False),
        Binding("G,end", "scroll_bottom", "Last row", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True, cell_padding=0)


class Listing(MonitorView, Generic[Row]):
    """The base of the lists."""

    DEFAULT_CSS = """
    Listing > DataTable { height: 1fr; }
    Listing > .title { height: 1; padding: 0 1; }
    Listing > Input { display: none; height: 3; }
    Listing > Input.open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search"),
        Binding("s", "order", "Order"),
        Binding("f", "follow", "Follow"),
        Binding("escape", "clear", "Clear the search", show=False),
    ]
    SORTS: Sequence[str] = ("newest",)
    HINT = ""
    """Placeholder of the search line."""
    NOUN = "rows"

    def __init__(self, follower: RunFollower, *, id: str | None = None) -> None:  # noqa: A002  textual's own name
        super().__init__(follower, id=id)
        self.words = ""
        """Content of the search line."""
        self.sort = self.SORTS[0]
        self.following = True
        self.unseen = 0
        self._rows: list[Row] = []
        self._next: str | None = None
        self._total = 0
        self._refused = ""
        self._more = False
        self._shown_width = 0
        self._reload_all = True
        """Whether everything has to be loaded again, as the search or the order changed."""

    # -- implemented by each list -----------------------------------------------------------------------------------

    @abstractmethod
    def columns(self) -> Sequence[ListColumn[Row]]: ...

    @abstractmethod
    def key(self, row: Row) -> str:
        """Return the unique key of a row."""

    @abstractmethod
    def read(self, words: str, sort: str, cursor: str | None, limit: int) -> ResultPage[Row]:
        """Read a page, in a thread.  Raises InvalidQueryError for an invalid search."""

    @abstractmethod
    def open(self, row: Row) -> None:
        """Open a row, as Enter was pressed on it."""

    # -- display -----------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(classes="title")
        yield Input(placeholder=self.HINT, classes="search")
        yield RowTable()

    @property
    def table(self) -> RowTable:
        return self.query_one(RowTable)

    @property
    def chosen(self) -> Row | None:
        """The row under the cursor."""
        at = self.table.cursor_row
        return self._rows[at] if 0 <= at < len(self._rows) else None

    def on_resize(self) -> None:
        if self._rows and self.size.width != self._shown_width:
            self._fill(self._rows)

    async def load(self) -> None:
        more, self._more = self._more, False
        reload_all, self._reload_all = self._reload_all, False
        search = (self.words, self.sort)
        try:
            if more and self._next is not None and not reload_all:
                self._append(await asyncio.to_thread(self.read, *search, self._next, PAGE_ROWS))
            elif self.following or reload_all:
                self._replace(await asyncio.to_thread(self.read, *search, None, PAGE_ROWS))
            else:
                self._count(await asyncio.to_thread(self.read, *search, None, 1))
            self._refused = ""
        except InvalidQueryError as error:
            self._refused = str(error)
        self._update_title()

    def _replace(self, page: ResultPage[Row]) -> None:
        self._next, self._total, self.unseen = page.next, page.total, 0
        if page.rows != self._rows or not self.table.columns:
            self._fill(page.rows)

    def _append(self, page: ResultPage[Row]) -> None:
        """Append the next page; new rows meanwhile are on the first page."""
        self._next = page.next
        self._rows += page.rows
        for row in page.rows:
            self._add(row)
        self.unseen = max(0, page.total - self._total)

    def _count(self, page: ResultPage[Row]) -> None:
        self.unseen = max(0, page.total - self._total)

    def _shown_columns(self) -> Sequence[ListColumn[Row]]:
        return [column for column in self.columns() if self.screen.size.width >= WIDE or not column.wide]

    def _widths(self) -> list[int]:
        """Return the columns' widths, with a blank before each."""
        widths = [column.width + 1 for column in self._shown_columns()]
        left = self.table.size.width - sum(widths) - 2  # space for the scrollbar
        return [max(_MIN_STRETCHED_WIDTH, left) if width == STRETCHED + 1 else width for width in widths]

    def _fill(self, rows: list[Row]) -> None:
        """Show these rows; the cursor stays on its row, unless the list follows."""
        table, chosen = self.table, self.chosen
        with self.prevent(DataTable.RowHighlighted):
            table.clear(columns=True)
            self._shown_width = self.size.width
            for column, width in zip(self._shown_columns(), self._widths(), strict=True):
                table.add_column(Text(f" {column.title}", QUIET), width=width)
            self._rows = list(rows)
            for row in rows:
                self._add(row)
            if chosen is not None and not self.following:
                keys = [self.key(row) for row in rows]
                table.move_cursor(row=keys.index(self.key(chosen)) if self.key(chosen) in keys else 0)

    def _add(self, row: Row) -> None:
        cells = (Text.assemble(" ", column.cell(row)) for column in self._shown_columns())
        self.table.add_row(*cells, key=self.key(row))

    def _update_title(self) -> None:
        """The line above the list."""
        if self._refused:
            line = Text(self._refused, BAD)
        else:
            search = f" · {self.words}" if self.words else ""
            line = Text.assemble(
                (f"{self._total:,} ", "bold"), f"{self.NOUN} · {self.sort}{search}  ", self._follow_state()
            )
        self.query_one(".title", Static).update(line)

    def _follow_state(self) -> Text:
        if self.following:
            return Text("● following", ACCENT)
        new = Text(f"  ▲ {self.unseen:,} new", f"bold {WARN}") if self.unseen else Text()
        return Text.assemble(("○ paused, press f to follow", QUIET), new)

    # -- actions -----------------------------------------------------------------------------------------------------

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Stop following below the first row, follow again at it, and load the next page near the end."""
        event.stop()
        at = self.table.cursor_row  # the event may be of an earlier move
        if self.following == bool(at):
            self.following = not at
            self._update_title()
            self.request_reload()
        if self._next is not None and at >= len(self._rows) - _NEAR_END:
            self._more = True
            self.request_reload()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        if (row := self.chosen) is not None:
            self.open(row)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.search(event.value.strip())
        event.input.remove_class("open")
        self.table.focus()

    def search(self, words: str, sort: str | None = None) -> None:
        """Start another search, in another order."""
        self.words, self.sort = words, sort or self.sort
        self.query_one(Input).value = words
        self._begin()

    def _begin(self) -> None:
        """Go to the first row, and follow the run."""
        self.following = self._reload_all = True
        self.table.move_cursor(row=0)
        self.request_reload()

    def action_search(self) -> None:
        line = self.query_one(Input)
        line.add_class("open")
        line.focus()

    def action_clear(self) -> None:
        self.query_one(Input).remove_class("open")
        self.table.focus()
        if self.words:
            self.search("")

    def action_order(self) -> None:
        at = self.SORTS.index(self.sort)
        self.search(self.words, self.SORTS[(at + 1) % len(self.SORTS)])

    def action_follow(self) -> None:
        if self.following:
            self.following = False
            self._update_title()
        else:
            self._begin()
