"""The two lines at the top of every screen: the state of the run, and the tabs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from launch.monitor.api_types import RunProgress
from launch.monitor.tui.drawing import styles
from launch.monitor.tui.drawing.styles import ACCENT, BAD, QUIET
from protocol.cli import formatting
from protocol.run_directory.run_status import RunStatus

_BAR_WIDTH, _SPACIOUS_WIDTH = 16, 100


@dataclass(frozen=True, slots=True)
class Tab:
    key: str
    name: str
    title: str


class HeadLine(Static):
    """Shows the state of the run, and problems of its directory in a second line."""

    DEFAULT_CSS = "HeadLine { height: auto; padding: 0 1; background: $panel; }"

    head: reactive[RunProgress | None] = reactive(None)

    def on_mount(self) -> None:
        self.set_interval(1.0, self._show)

    def on_resize(self) -> None:
        self._show()

    def watch_head(self) -> None:
        self._show()

    def _show(self) -> None:
        if self.head is not None:
            self.update(render_head_line(self.head, max(20, self.size.width), time.time()))


def render_head_line(head: RunProgress, width: int, now: float) -> Text:
    """Return as much of the state as fits.  Pure."""
    parts = [
        Text.assemble(("longshore ", f"bold {ACCENT}"), (formatting.truncate_text(head.run, 24), "bold")),
        styles.render_run_status(head.status, head.flow),
        _step(head, _BAR_WIDTH if width >= _SPACIOUS_WIDTH else _BAR_WIDTH // 2),
        Text.assemble(
            ("reward ", QUIET),
            formatting.format_decimal(head.reward_mean),
            ("  pass ", QUIET),
            formatting.format_percent(head.pass_rate),
        ),
        Text(f"{head.running} running"),
        Text(_news(head, now), QUIET),
    ]
    line = parts[0]
    for part in parts[1:]:
        if part.plain and line.cell_len + 3 + part.cell_len <= width:
            line = Text.assemble(line, "   ", part)
    if head.problem:
        line = Text.assemble(line, "\n", (head.problem, f"bold {BAD}"))
    elif head.behind_bytes:
        line = Text.assemble(
            line, "\n", (f"{formatting.format_bytes(head.behind_bytes)} of past events still to be counted", QUIET)
        )
    return line


def _step(head: RunProgress, width: int) -> Text:
    if not head.step:
        return Text(formatting.humanize_name(head.phase) or "waiting for the first event", ACCENT)
    if not head.steps:
        return Text(f"step {head.step}", ACCENT)
    done = min(width, round(width * head.step / head.steps))
    bar = (("━" * done, ACCENT), ("━" * (width - done), QUIET))
    return Text.assemble((f"step {head.step}/{head.steps} ", ACCENT), *bar)


def _news(head: RunProgress, now: float) -> str:
    if head.last_event_at is None or head.status is not RunStatus.RUNNING:
        return ""
    return f"last event {formatting.format_age(now - head.last_event_at)} ago"


class TabLine(Static):
    """Tabs that can be chosen by key or mouse."""

    DEFAULT_CSS = """
    TabLine { height: 1; padding: 0 1; background: $panel; link-style: none; link-color: $text;
      link-style-hover: underline; link-color-hover: $text; link-background-hover: $panel; }
    """

    @dataclass
    class Chosen(Message):
        """A tab was chosen with the mouse."""

        name: str

    def __init__(self, tabs: Sequence[Tab]) -> None:
        super().__init__()
        self._tabs = tabs
        self._current, self._notes = tabs[0].name, dict[str, str]()

    def on_mount(self) -> None:
        self._show()

    def select(self, name: str) -> None:
        self._current = name
        self._show()

    def note(self, name: str, text: str) -> None:
        """Show a short text next to a tab's title."""
        if self._notes.get(name, "") != text:
            self._notes[name] = text
            self._show()

    def _show(self) -> None:
        line = Text()
        for tab in self._tabs:
            here = tab.name == self._current
            shown = Text.assemble((f" {tab.key} ", QUIET), (tab.title, f"bold {ACCENT} reverse" if here else ""))
            if note := self._notes.get(tab.name):
                shown.append(f" {note}", QUIET)
            shown.stylize(Style.from_meta({"@click": f"choose('{tab.name}')"}))
            line.append_text(shown.append(" "))
        self.update(line)

    def action_choose(self, name: str) -> None:
        self.post_message(self.Chosen(name))
