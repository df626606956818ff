"""Plays a terminal recording, with speed and jumps to turns.  Screens are drawn in a thread, one at a time."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from launch.monitor.tui.drawing.playback import RecordingPlayback, ScreenImage, read_playback
from launch.monitor.tui.drawing.styles import ACCENT, QUIET
from launch.monitor.tui.drawing.terminal_screen import render_screen
from protocol.cli import formatting

_TICK_S = 0.1
_JUMP_S = 2.0
_SPEEDS = (0.5, 1.0, 2.0, 4.0, 8.0)


class RecordingPlayer(Widget, can_focus=True):
    """The player, which starts at the end of the recording."""

    DEFAULT_CSS = """
    RecordingPlayer { height: 1fr; }
    RecordingPlayer > #screen { height: 1fr; border: round $foreground 25%; padding: 0 1; }
    RecordingPlayer:focus > #screen { border: round $accent; }
    RecordingPlayer > #bar { height: 1; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "play", "Play, pause"),
        Binding("left", "jump(-1)", "Back", show=False),
        Binding("right", "jump(1)", "Forward", show=False),
        Binding("b", "turn(-1)", "Previous turn"),
        Binding("n", "turn(1)", "Next turn"),
        Binding("plus,equals_sign", "speed(1)", "Faster", show=False),
        Binding("minus", "speed(-1)", "Slower", show=False),
        Binding("home", "seek(0)", "Start", show=False),
        Binding("end", "seek(1)", "End", show=False),
    ]

    def __init__(self, path: Path | None, *, id: str | None = None) -> None:  # noqa: A002  textual's own name
        super().__init__(id=id)
        self._path = path
        self._playback = RecordingPlayback([], [])
        self._picture: ScreenImage | None = None
        self.moment_s = 0.0
        self.playing = False
        self._speed = _SPEEDS.index(1.0)
        self._wanted = asyncio.Event()
        self._pending: float | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="screen")
        yield Static(id="bar")

    def on_mount(self) -> None:
        self.run_worker(self._keep())
        self.set_interval(_TICK_S, self.tick)

    def on_resize(self) -> None:
        self._show()

    def show_recording(self, path: Path | None) -> None:
        """Load another recording, or the same one again after it has grown."""
        self._path = path
        self.run_worker(self._read(), exclusive=True, group="read")

    async def _read(self) -> None:
        path = self._path
        if path is not None:
            self._playback = await asyncio.to_thread(read_playback, path)
        self.moment_s = self._playback.length_s
        if self._pending is not None:
            self.play_from(self._pending)
        self._wanted.set()

    async def _keep(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._picture = await asyncio.to_thread(self._playback.screen_at, self.moment_s)
            self._show()

    def tick(self) -> None:
        """Play on by one tick of the clock, unless the recording is paused."""
        if self.playing:
            self._go(self.moment_s + _TICK_S * _SPEEDS[self._speed])
            self.playing = self.moment_s < self._playback.length_s

    def _go(self, moment_s: float) -> None:
        self.moment_s = min(max(0.0, moment_s), self._playback.length_s)
        self._wanted.set()

    def play_from(self, at_s: float) -> None:
        """Play from a time of the recording, once it is loaded."""
        self._pending = at_s if self._playback.is_empty else None
        self.playing = True
        self._go(self._playback.playback_time(at_s))

    def _show(self) -> None:
        screen = self.query_one("#screen", Static)
        if self._picture is None or self._playback.is_empty:
            screen.update(Text("No terminal was recorded, or it was deleted." if self._path is None else "", QUIET))
            return
        screen.update(render_screen(self._picture, screen.content_size.width, max(1, screen.content_size.height)))
        self.query_one("#bar", Static).update(self._bar(max(10, self.size.width - 36)))

    def _bar(self, width: int) -> Text:
        length = self._playback.length_s or _TICK_S  # everything may have been printed at once
        line = Text("─" * width, QUIET)
        done = round((width - 1) * self.moment_s / length)
        line.stylize(f"not dim {ACCENT}", 0, done)
        for mark in self._playback.marks:
            at = round((width - 1) * mark / length)
            line = Text.assemble(line[:at], ("┿", ACCENT if at < done else QUIET), line[at + 1 :])
        line = Text.assemble(line[:done], ("●", f"bold {ACCENT}"), line[done + 1 :])
        turn = bisect_right(self._playback.marks, self.moment_s + 1e-6)
        return Text.assemble(
            ("▶ " if self.playing else "■ ", "bold"), line,
            f"  {formatting.format_clock(self.moment_s)}/{formatting.format_clock(length)}",
            (f"  turn {turn}/{len(self._playback.marks)}" if self._playback.marks else "", QUIET),
            (f"  ×{_SPEEDS[self._speed]:g}", QUIET),
        )  # fmt: skip

    # -- keys --------------------------------------------------------------------------------------------------------

    def action_play(self) -> None:
        if not self.playing and self.moment_s >= self._playback.length_s:
            self.moment_s = 0.0
        self.playing = not self.playing
        self._wanted.set()

    def action_jump(self, by: int) -> None:
        self._go(self.moment_s + by * _JUMP_S)

    def action_seek(self, share: int) -> None:
        self._go(share * self._playback.length_s)

    def action_speed(self, by: int) -> None:
        self._speed = min(max(0, self._speed + by), len(_SPEEDS) - 1)
        self._show()

    def action_turn(self, by: int) -> None:
        """Jump to the start of the next or previous turn."""
        marks = self._playback.marks
        at = bisect_right(marks, self.moment_s + 1e-6) if by > 0 else bisect_left(marks, self.moment_s - 1e-6) - 1
        self._go(marks[at] if 0 <= at < len(marks) else by * self._playback.length_s)
