"""Shows the tokens of a segment, page by page, with a cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from launch.monitor.api_types import SegmentView, TokenPage
from launch.monitor.archive.token_facts import LocatedTrajectory
from launch.monitor.archive.token_pages import read_token_page
from launch.monitor.run_follower import RunFollower
from launch.monitor.tui.drawing.token_colours import (
    TokenColouring,
    TokenPiece,
    describe_token,
    render_legend,
    render_tokens,
    wrap_tokens,
)
from launch.monitor.tui.views.base import MonitorView

_PAGE = 1_000
_BY = tuple(TokenColouring)


class TokenView(MonitorView):
    """The tokens of one segment."""

    DEFAULT_CSS = """
    TokenView > Static { height: 1; padding: 0 1; }
    TokenView > #token { height: auto; max-height: 3; }
    TokenView > VerticalScroll { height: 1fr; overflow-y: scroll; border: round $foreground 25%; padding: 0 1; }
    TokenView #text { text-wrap: nowrap; }
    TokenView > VerticalScroll:focus { border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "colour", "Colour by"),
        Binding("left,h", "move(-1)", "Previous token", show=False, priority=True),
        Binding("right,l", "move(1)", "Next token", show=False, priority=True),
        Binding("up,k", "line(-1)", "Line up", show=False, priority=True),
        Binding("down,j", "line(1)", "Line down", show=False, priority=True),
        Binding("left_square_bracket", "page(-1)", "Previous page", show=False),
        Binding("right_square_bracket", "page(1)", "Next page"),
        Binding("n", "segment", "Segment", show=False),
    ]

    def __init__(self, follower: RunFollower, *, id: str | None = None) -> None:  # noqa: A002  textual's own name
        super().__init__(follower, id=id)
        self._where: LocatedTrajectory | None = None
        self._segments: Sequence[SegmentView] = ()
        self.segment, self.start, self.cursor = 0, 0, 0
        self.by = TokenColouring.PROBABILITY
        self.page: TokenPage | None = None
        self._lines: list[list[TokenPiece]] = []

    def compose(self) -> ComposeResult:
        yield Static(id="legend")
        with VerticalScroll():
            yield Static(id="text")
        yield Static(id="token")

    def on_resize(self) -> None:
        self._wrap()

    def show_tokens(self, where: LocatedTrajectory, segments: Sequence[SegmentView]) -> None:
        self._where, self._segments = where, segments
        self.request_reload()

    def go_to_token(self, segment: int, token: int) -> None:
        """Move the cursor to one token."""
        self.segment, self.start = segment, token // _PAGE * _PAGE
        self.cursor = token - self.start
        self.request_reload()

    async def load(self) -> None:
        where = self._where
        if where is None:
            return
        request = (self.segment, self.start, _PAGE)
        self.page = await asyncio.to_thread(lambda: read_token_page(self.follower.read_context(), where, *request))
        self._wrap()

    def _wrap(self) -> None:
        if self.page is not None:
            self._lines = wrap_tokens(
                self.page, max(10, self.query_one(VerticalScroll).scrollable_content_region.width)
            )
            self.cursor = min(self.cursor, max(0, len(self.page.id) - 1))
            self._show()

    def _show(self) -> None:
        if self.page is None:
            return
        many = f"segment {self.segment + 1} of {len(self._segments)}" if len(self._segments) > 1 else ""
        self.query_one("#legend", Static).update(render_legend(self.by).append(many))
        self.query_one("#text", Static).update(render_tokens(self.page, self._lines, self.by, self.cursor))
        self.query_one("#token", Static).update(describe_token(self.page, self.cursor))
        scroll, line = self.query_one(VerticalScroll), self._line_of(self.cursor)
        top, height = round(scroll.scroll_y), max(1, scroll.scrollable_content_region.height)
        if not top <= line < top + height:
            self.call_after_refresh(scroll.scroll_to, y=max(0, line - height // 3), animate=False)

    def _line_of(self, token: int) -> int:
        return next((at for at, line in enumerate(self._lines) if any(piece.token == token for piece in line)), 0)

    # -- keys --------------------------------------------------------------------------------------------------------

    def action_colour(self) -> None:
        self.by = _BY[(_BY.index(self.by) + 1) % len(_BY)]
        self._show()

    def action_move(self, by: int) -> None:
        if self.page is not None:
            self.cursor = min(max(0, self.cursor + by), max(0, len(self.page.id) - 1))
            self._show()

    def action_line(self, by: int) -> None:
        """Move the cursor to the token above or below."""
        line = self._line_of(self.cursor)
        column = sum(len(piece.text) for piece in self._lines[line] if piece.token < self.cursor)
        target = line + by
        if not 0 <= target < len(self._lines):
            return
        for piece in self._lines[target]:
            self.cursor = piece.token
            column -= len(piece.text)
            if column < 0:
                break
        self._show()

    def action_page(self, by: int) -> None:
        if self.page is not None and 0 <= self.start + by * _PAGE < self.page.total:
            self.go_to_token(self.segment, self.start + by * _PAGE)

    def action_segment(self) -> None:
        if self._segments:
            self.go_to_token((self.segment + 1) % len(self._segments), 0)
