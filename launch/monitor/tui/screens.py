"""The screens of the app: one with tabs, others that are opened on top of it, and the help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import ContentSwitcher, Footer, Static

from launch.monitor.tui.drawing.styles import ACCENT, QUIET, WIDE
from launch.monitor.tui.views.base import MonitorView, ScreenShown, focus_first
from launch.monitor.tui.views.header import HeadLine, Tab, TabLine


class MonitorScreen(Screen[None]):
    """Base of the screens that show a view."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012  a ClassVar or None, as textual says it

    def on_screen_resume(self) -> None:
        self.post_message(ScreenShown())


class TabbedScreen(MonitorScreen):
    """The first screen, with tabs."""

    DEFAULT_CSS = "TabbedScreen > ContentSwitcher { height: 1fr; }"

    def __init__(self, tabs: Sequence[Tab], views: Sequence[MonitorView]) -> None:
        super().__init__()
        self._tabs, self._views = tabs, {view.id: view for view in views}
        self.shown = views[0]
        """View of the selected tab."""

    def compose(self) -> ComposeResult:
        yield HeadLine()
        yield TabLine(self._tabs)
        with ContentSwitcher(initial=self._tabs[0].name):
            yield from self._views.values()
        yield Footer(show_command_palette=False)

    async def on_tab_line_chosen(self, event: TabLine.Chosen) -> None:
        await self.run_action(f"app.show('{event.name}')")

    def show(self, name: str) -> None:
        """Switch to one of the tabs."""
        self.query_one(ContentSwitcher).current = name
        self.query_one(TabLine).select(name)
        self.shown = self._views[name]
        focus_first(self.shown)


class DetailScreen(MonitorScreen):
    """A screen on top of the tabs, for one opened view."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.back", "Back")]

    def __init__(self, view: MonitorView) -> None:
        super().__init__()
        self.shown = view

    def compose(self) -> ComposeResult:
        yield HeadLine()
        yield self.shown
        yield Footer(show_command_palette=False)


class KeySection(NamedTuple):
    title: str
    keys: Mapping[str, Sequence[str]]
    """Action → its keys."""


class HelpScreen(ModalScreen[None]):
    """The keys of the screen below."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll { width: 66; max-width: 100%; height: auto; max-height: 90%; padding: 1 2;
      background: $panel; border: round $accent; border-title-color: $text; }
    HelpScreen Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark", "app.back", "Close")]

    def __init__(self, sections: Sequence[KeySection]) -> None:
        super().__init__()
        self._sections = sections

    def compose(self) -> ComposeResult:
        box = VerticalScroll(Static(render_key_table(self._sections)))
        box.border_title = "Keys"
        box.border_subtitle = "Escape closes"
        yield box


def render_key_table(sections: Sequence[KeySection]) -> Text:
    """Return the table of keys.  Pure."""
    lines: list[Text] = []
    for section in sections:
        lines.append(Text(section.title, f"bold {ACCENT}"))
        for action, keys in section.keys.items():
            lines.append(Text.assemble((f"  {' '.join(keys):<24} ", "bold"), (action, QUIET)))
        lines.append(Text())
    return Text("\n").join(lines[:-1])
