"""The monitor in a terminal: ``longshore monitor RUN --tui``.

A follower reads the run's files in a thread, and the shown view reloads when there is news.  The app ends by q, Ctrl-C
or SIGTERM, and restores the terminal.
"""

from __future__ import annotations

import asyncio
import math
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rich.segment import Segment
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.screen import Screen

from launch.monitor.api_types import RunProgress
from launch.monitor.run_follower import RunFollower
from launch.monitor.tui.screens import DetailScreen, HelpScreen, KeySection, TabbedScreen
from launch.monitor.tui.views.base import (
    GroupRequested,
    MonitorView,
    ReadFailed,
    TerminalRequested,
    TrajectoryRequested,
)
from launch.monitor.tui.views.group_list import GroupList
from launch.monitor.tui.views.group_view import GroupView
from launch.monitor.tui.views.header import HeadLine, Tab, TabLine
from launch.monitor.tui.views.log_view import LogList
from launch.monitor.tui.views.overview import Overview
from launch.monitor.tui.views.terminal_wall import LiveTerminal, TerminalWall
from launch.monitor.tui.views.trajectory_list import TrajectoryList
from launch.monitor.tui.views.trajectory_view import TrajectoryView
from protocol.plain_text import sanitize_text

POLL_S = 0.25
NEWS_S = 1.0
"""Minimum seconds between two reloads of the shown view."""
TABS = (
    Tab("1", "overview", "Overview"),
    Tab("2", "trajectories", "Trajectories"),
    Tab("3", "groups", "Groups"),
    Tab("4", "terminals", "Terminals"),
    Tab("5", "log", "Log"),
)
_OURS = "launch.monitor.tui"
_ATTEMPT = re.compile(r"-a\d+\Z")


class _PlainText(LineFilter):
    """Keeps control characters in the text of runs from the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        del background
        return [Segment(sanitize_text(text), style, control) for text, style, control in segments]


class MonitorApp(App[None]):
    """The terminal UI of one run.  Raises NoSuchRunError if ``run_dir`` is not a folder."""

    CSS = """
    * { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; border-subtitle-color: $text-muted; }
    DataTable { background: $background; }
    DataTable > .datatable--header { background: $background; }
    .-wide Overview #pair { layout: horizontal; }
    .-wide Overview #pair > Static { width: 1fr; }
    .-wide TurnList { layout: horizontal; }
    .-wide TurnList > OptionList { height: 1fr; width: 62; }
    .-wide TurnList > VerticalScroll { height: 1fr; width: 1fr; }
    """
    TITLE = "longshore"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(tab.key, f"show('{tab.name}')", tab.title, show=False) for tab in TABS),
        Binding("d", "light", "Light or dark", show=False),
        Binding("question_mark", "help", "Help"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, run_dir: Path, *, light: bool = False) -> None:
        super().__init__()
        self.follower = RunFollower(run_dir)
        self.theme = "textual-light" if light else "textual-dark"
        self._head: RunProgress | None = None

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), _PlainText()]

    def get_default_screen(self) -> Screen[None]:
        follower = self.follower
        views = (
            Overview(follower, id="overview"),
            TrajectoryList(follower, id="trajectories"),
            GroupList(follower, id="groups"),
            TerminalWall(follower, id="terminals"),
            LogList(follower, id="log"),
        )
        return TabbedScreen(TABS, views)

    def on_mount(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        self.run_worker(self._follow())

    def on_unmount(self) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

    async def _follow(self) -> None:
        """Poll the run until the app ends."""
        await asyncio.to_thread(self.follower.load_initial)
        shown, shown_at = -1, -math.inf
        while True:
            more = await asyncio.to_thread(self.follower.poll)
            now = time.monotonic()
            if self.follower.revision != shown and now - shown_at >= NEWS_S:
                shown, shown_at = self.follower.revision, now
                self._head = await asyncio.to_thread(self.follower.head)
                self._announce_news()
            await asyncio.sleep(0 if more else POLL_S)

    def _announce_news(self) -> None:
        """Update the header, and request a reload of the shown view."""
        page = self.screen
        if self._head is None or not isinstance(page, TabbedScreen | DetailScreen):
            return
        for line in page.query(HeadLine):
            line.head = self._head
        for tabs in page.query(TabLine):
            tabs.note("trajectories", f"{self._head.trajectories:,}")
            tabs.note("groups", f"{self._head.groups:,}")
            tabs.note("terminals", f"{self._head.running:,}" if self._head.running else "")
        page.shown.request_reload()

    def _open(self, view: MonitorView) -> None:
        self.push_screen(DetailScreen(view))

    def on_screen_shown(self) -> None:
        self._announce_news()

    # -- requests of views --------------------------------------------------------------------------------------------

    def on_trajectory_requested(self, event: TrajectoryRequested) -> None:
        self.run_worker(self._open_trajectory(event.trajectory), exclusive=True, group="open")

    async def _open_trajectory(self, attempt: str) -> None:
        """Open a trajectory; one that was not acknowledged has at most a terminal."""
        name = _ATTEMPT.sub("", attempt)
        known = await asyncio.to_thread(self.follower.locate, name)
        self._open(LiveTerminal(self.follower, attempt) if known is None else TrajectoryView(self.follower, name))

    def on_group_requested(self, event: GroupRequested) -> None:
        self._open(GroupView(self.follower, event.group))

    def on_terminal_requested(self, event: TerminalRequested) -> None:
        self._open(LiveTerminal(self.follower, event.recording))

    def on_read_failed(self, event: ReadFailed) -> None:
        self.notify(event.line, severity="warning", markup=False)

    # -- keys --------------------------------------------------------------------------------------------------------

    def action_show(self, name: str) -> None:
        while isinstance(self.screen, DetailScreen | HelpScreen):
            self.pop_screen()
        if isinstance(self.screen, TabbedScreen):
            self.screen.show(name)
            self._announce_news()

    async def action_back(self) -> None:
        if len(self.screen_stack) > 1:
            await self.pop_screen()

    def action_light(self) -> None:
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_help(self) -> None:
        page = self.screen
        if isinstance(page, TabbedScreen | DetailScreen):
            self.push_screen(HelpScreen(self._keys(page)))

    def _keys(self, page: TabbedScreen | DetailScreen) -> list[KeySection]:
        """Return the keys that work now, without those of textual's own widgets."""
        here, everywhere = dict[str, list[str]](), dict[str, list[str]]()
        for active in page.active_bindings.values():
            if active.enabled and active.binding.description in _described(active.node):
                keys = everywhere if active.node is self else here
                keys.setdefault(active.binding.description, []).append(self.get_key_display(active.binding))
        moving = {"Move": ["arrows", "PageUp", "PageDown"], "Next or previous pane": ["Tab", "Shift-Tab"]}
        return [KeySection("Here", here | moving), KeySection("Everywhere", everywhere)]


def _described(node: DOMNode) -> set[str]:
    ours = (kind for kind in type(node).__mro__ if kind.__module__.startswith(_OURS))
    bindings = (each for kind in ours for each in vars(kind).get("BINDINGS", ()))
    return {each.description for each in bindings if isinstance(each, Binding)}
