"""Shows live terminals as tiles, or one of them enlarged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from launch.monitor.run_follower import RunFollower
from launch.monitor.run_state.model import EpisodeProgress
from launch.monitor.tui.drawing.playback import LiveScreen, ScreenImage
from launch.monitor.tui.drawing.styles import QUIET
from launch.monitor.tui.drawing.terminal_screen import render_screen
from launch.monitor.tui.views.base import MonitorView, TerminalRequested, focus_first
from protocol.cli import formatting
from protocol.run_directory.recording_reader import recording_path

_TILE_WIDTH, _TILE_HEIGHT = 40, 10
_POLL_S = 0.5


class TerminalTile(Static, can_focus=True):
    """The tile of one terminal."""

    DEFAULT_CSS = """
    TerminalTile { height: 1fr; border: round $foreground 25%; padding: 0 1; border-title-color: $text; }
    TerminalTile:focus { border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Enlarge"),
        Binding("right,down,l,j", "app.focus_next", "Next", show=False),
        Binding("left,up,h,k", "app.focus_previous", "Back", show=False),
    ]
    recording = ""

    def show_session(self, session: EpisodeProgress, shown: ScreenImage | None) -> None:
        self.recording = session.trajectory
        self.border_title = Text(f"{formatting.truncate_text(session.task, 22)} · {session.sample}")
        self.border_subtitle = Text(f"turn {session.turn} · {session.sampled:,} tokens")
        empty = Text("no output yet", QUIET)
        self.update(
            empty if shown is None else render_screen(shown, self.content_size.width, max(1, self.content_size.height))
        )

    def action_open(self) -> None:
        self.post_message(TerminalRequested(self.recording))


class TerminalWall(MonitorView):
    """Terminals of the running episodes, the longest running first, page by page."""

    DEFAULT_CSS = """
    TerminalWall > Static { height: 1; padding: 0 1; }
    TerminalWall > Container { layout: grid; grid-gutter: 0; height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "turn(1)", "More terminals"),
        Binding("b", "turn(-1)", "Back"),
    ]

    def __init__(self, follower: RunFollower, *, id: str | None = None) -> None:  # noqa: A002  textual's own name
        super().__init__(follower, id=id)
        self._first = 0
        self._screens: dict[str, LiveScreen] = {}

    def compose(self) -> ComposeResult:
        yield Static()
        yield Container()

    def on_mount(self) -> None:
        self.set_interval(_POLL_S, self._poll)

    def _poll(self) -> None:
        """Reload, as terminals change between two events of the run."""
        if self.is_on_screen and self._screens:
            self.request_reload()

    async def load(self) -> None:
        across = max(1, self.size.width // _TILE_WIDTH)
        room = across * max(1, (self.size.height - 1) // _TILE_HEIGHT)
        count, sessions, pictures = await asyncio.to_thread(self._read, room)
        line = f"{count} episodes running" if count else "No episode is running; press 2 for finished ones."
        here = f", {self._first + 1} to {self._first + len(sessions)} shown" if count > len(sessions) else ""
        self.query_one(Static).update(Text(line + here, QUIET if not count else ""))
        await self._arrange(len(sessions), min(across, max(1, len(sessions))))
        for tile, session, shown in zip(self.query(TerminalTile), sessions, pictures, strict=True):
            tile.show_session(session, shown)

    def _read(self, room: int) -> tuple[int, Sequence[EpisodeProgress], Sequence[ScreenImage | None]]:
        view = self.follower.view()
        running = sorted(view.running, key=lambda session: session.started_at)
        self._first = min(self._first, max(0, (len(running) - 1) // room * room))
        shown = running[self._first : self._first + room]
        names = {session.trajectory for session in shown}
        self._screens = {name: screen for name, screen in self._screens.items() if name in names}
        return view.running_count, shown, [self._picture(session.trajectory) for session in shown]

    def _picture(self, name: str) -> ScreenImage | None:
        path = recording_path(self.follower.run_dir, name)
        if name not in self._screens and path is not None and path.exists():
            self._screens[name] = LiveScreen(path)
        return self._screens[name].current_image() if name in self._screens else None

    async def _arrange(self, count: int, across: int) -> None:
        grid = self.query_one(Container)
        grid.styles.grid_size_columns = across
        tiles = list(self.query(TerminalTile))
        for tile in tiles[count:]:
            await tile.remove()
        if count > len(tiles):
            await grid.mount(*(TerminalTile() for _ in range(count - len(tiles))))
        if count and self.screen.focused is None:
            focus_first(self)

    def action_turn(self, by: int) -> None:
        shown = max(1, len(self.query(TerminalTile)))
        self._first = max(0, self._first + by * shown)
        self.request_reload()


class LiveTerminal(MonitorView):
    """One enlarged terminal."""

    DEFAULT_CSS = "LiveTerminal > Static { height: 1fr; border: round $accent; padding: 0 1; }"

    def __init__(self, follower: RunFollower, recording: str) -> None:
        super().__init__(follower)
        path = recording_path(follower.run_dir, recording)
        self._recording, self._path = recording, path
        self._screen: LiveScreen | None = None

    def compose(self) -> ComposeResult:
        yield Static()

    def on_mount(self) -> None:
        self.query_one(Static).border_title = Text(self._recording)
        self.set_interval(_POLL_S, self.request_reload)

    async def load(self) -> None:
        shown, live = await asyncio.to_thread(self._read)
        screen = self.query_one(Static)
        screen.border_subtitle = "live" if live else "ended"
        empty = Text("No terminal was recorded, or it was deleted.", QUIET)
        room = screen.content_size
        screen.update(empty if shown is None else render_screen(shown, room.width, max(1, room.height)))

    def _read(self) -> tuple[ScreenImage | None, bool]:
        if self._screen is None and self._path is not None and self._path.exists():
            self._screen = LiveScreen(self._path)
        return (
            None if self._screen is None else self._screen.current_image()
        ), self._recording in self.follower.live_recordings
