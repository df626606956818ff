"""The first tab: how the run is doing, and why it is slow or not learning."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.widgets import Static

from launch.monitor.api_types import ActivityTimeline
from launch.monitor.archive.activity import MAX_SLOTS, read_activity
from launch.monitor.run_state.view import RunView
from launch.monitor.tui.drawing import overview_panels
from launch.monitor.tui.drawing.activity_timeline import render_activity
from launch.monitor.tui.views.base import MonitorView

_TIMELINE_MARGIN = 20
"""Columns of the timeline for labels and borders."""


class Overview(MonitorView):
    """Panels below each other; some are side by side on a wide screen."""

    DEFAULT_CSS = """
    Overview > VerticalScroll { padding: 0 1; }
    Overview #pair { height: auto; layout: vertical; }
    Overview Static { height: auto; border: round $foreground 25%; border-title-color: $text-muted; padding: 0 1; }
    Overview #facts { border: none; padding: 1 1 0 1; }
    Overview #alerts.some { border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll(1)", "Down", show=False),
        Binding("up,k", "scroll(-1)", "Up", show=False),
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield _panel("facts", "")
            yield _panel("alerts", "Alerts")
            yield _panel("curves", "Curves")
            with Container(id="pair"):
                yield _panel("engines", "Engines")
                yield _panel("evaluations", "Evaluations")
            yield _panel("activity", "Activity")
            yield _panel("sessions", "Longest running episodes")

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    async def load(self) -> None:
        width = max(40, self.size.width - 6)
        view, activity = await asyncio.to_thread(self._read, min(MAX_SLOTS, max(10, width - _TIMELINE_MARGIN)))
        self._show("facts", overview_panels.render_facts(view, width))
        self._show("alerts", overview_panels.render_alerts(view))
        self.query_one("#alerts").set_class(bool(view.alerts), "some")
        self._show("curves", overview_panels.render_curves(view, width))
        self._show("activity", render_activity(activity))
        self._show("engines", overview_panels.render_engines(view))
        self._show("evaluations", overview_panels.render_evaluations(view))
        self._show("sessions", overview_panels.render_episodes(view, width))

    def _read(self, slots: int) -> tuple[RunView, ActivityTimeline]:
        return self.follower.view(), read_activity(self.follower.run_dir, None, None, slots)

    def _show(self, name: str, text: Text) -> None:
        self.query_one(f"#{name}", Static).update(text)


def _panel(name: str, title: str) -> Static:
    panel = Static(id=name)
    panel.border_title = title or None
    return panel
