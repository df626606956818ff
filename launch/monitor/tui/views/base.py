"""The base of all views, which load their data in a thread and reload it when there is news.

A view loads once at a time; requests during a load lead to one more load after it.  So a slow disk only delays the
view. Data that cannot be read is reported as one line.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from textual.message import Message
from textual.widget import Widget

from launch.monitor.run_follower import RunFollower
from protocol.errors import LongshoreError


class MonitorView(Widget):
    """The base of all views.  A hidden view does not load."""

    DEFAULT_CSS = "MonitorView { height: 1fr; }"

    def __init__(self, follower: RunFollower, *, id: str | None = None) -> None:  # noqa: A002  textual's own name
        super().__init__(id=id)
        self.follower = follower
        self._wanted = asyncio.Event()

    def on_mount(self) -> None:
        self.run_worker(self._reload_on_request(), group="keep")
        self.request_reload()

    def on_show(self) -> None:
        self.request_reload()

    def on_resize(self) -> None:
        self.request_reload()

    def request_reload(self) -> None:
        """Request a reload, as there is news or other data is needed."""
        self._wanted.set()

    async def _reload_on_request(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not (self.display and self.size):
                continue  # showing and resizing request a reload
            try:
                await self.load()
            except (LongshoreError, OSError) as error:
                self.show_error(str(error))

    def show_error(self, line: str) -> None:
        """Show why something could not be read."""
        self.post_message(ReadFailed(line))

    async def load(self) -> None:
        """Read the data in a thread and show it.  May raise LongshoreError or OSError."""
        raise NotImplementedError


def focus_first(part: Widget) -> None:
    """Focus a widget, or its first focusable child."""
    focusable = (each for each in (part, *part.query("*")) if each.focusable and each.display)
    part.screen.set_focus(next(focusable, None))


@dataclass
class ReadFailed(Message):
    """Data could not be read."""

    line: str


class ScreenShown(Message):
    """A screen is shown, for the first time or again."""


@dataclass
class TrajectoryRequested(Message):
    """A trajectory was selected."""

    trajectory: str


@dataclass
class GroupRequested(Message):
    """A group was selected."""

    group: int


@dataclass
class TerminalRequested(Message):
    """A terminal recording was selected, which may still be written."""

    recording: str
