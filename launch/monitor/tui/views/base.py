"""A part of the screen that shows what a run's files say, and asks them again when there is news.

A view asks one question at a time, in a thread; what is asked for while one is under way is asked once, after it.  So
a slow disk makes a view late and nothing else.  What cannot be read is a line in the view's place.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from textual.message import Message
from textual.widget import Widget

from launch.monitor.run_follower import RunFollower
from protocol.errors import LongshoreError


class MonitorView(Widget):
    """The base of all views.  A view that is not shown asks nothing until it is."""

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
        """Ask again: there is news, or something else is wanted."""
        self._wanted.set()

    async def _reload_on_request(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not (self.display and self.size):
                continue  # it is asked again when it is shown, and when it has its place
            try:
                await self.load()
            except (LongshoreError, OSError) as error:
                self.show_error(str(error))

    def show_error(self, line: str) -> None:
        """Show why something could not be read."""
        self.post_message(ReadFailed(line))

    async def load(self) -> None:
        """Read in a thread, and show.  Errors of reading may be raised."""
        raise NotImplementedError


def focus_first(part: Widget) -> None:
    """Keys go to it, or to the first thing in it that takes them."""
    takers = (each for each in (part, *part.query("*")) if each.focusable and each.display)
    part.screen.set_focus(next(takers, None))


@dataclass
class ReadFailed(Message):
    """A line for the person."""

    line: str


class ScreenShown(Message):
    """A page is on the screen, for the first time or again."""


@dataclass
class TrajectoryRequested(Message):
    """An acknowledged one, by its id."""

    trajectory: str


@dataclass
class GroupRequested(Message):
    group: int


@dataclass
class TerminalRequested(Message):
    """A recording by its name, also of an episode that still runs."""

    recording: str
