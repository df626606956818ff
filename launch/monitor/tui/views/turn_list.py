"""Lists the turns of a trajectory, with the text of the selected one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from launch.monitor.api_types import SegmentView, TurnView
from launch.monitor.tui.drawing.styles import ACCENT, BAD, QUIET, WARN
from protocol.cli import formatting
from protocol.trajectory import TurnKind

_KINDS = {"model": ACCENT, "observation": "", "prompt": QUIET}


@dataclass(frozen=True, slots=True)
class SegmentTurn:
    """A turn with the number of its segment."""

    segment: int
    turn: TurnView


class TurnList(Widget):
    """The turns of one trajectory."""

    DEFAULT_CSS = """
    TurnList { height: 1fr; layout: vertical; }
    TurnList > OptionList { height: 2fr; border: round $foreground 25%; padding: 0; text-wrap: nowrap; }
    TurnList > VerticalScroll { height: 3fr; border: round $foreground 25%; padding: 0 1; }
    TurnList > OptionList:focus, TurnList > VerticalScroll:focus { border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "play", "Play from here"),
    ]

    @dataclass
    class Play(Message):
        """Requests to play the terminal from a turn on."""

        at_s: float

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  textual's own name
        super().__init__(id=id)
        self._places: list[SegmentTurn] = []

    def compose(self) -> ComposeResult:
        yield OptionList()
        with VerticalScroll():
            yield Static()

    @property
    def chosen(self) -> SegmentTurn | None:
        at = self.query_one(OptionList).highlighted
        return None if at is None or at >= len(self._places) else self._places[at]

    @property
    def first_sampled(self) -> SegmentTurn | None:
        """The first model turn at or after the selected turn."""
        at = self.query_one(OptionList).highlighted or 0
        return next((place for place in self._places[at:] if place.turn.kind == TurnKind.MODEL), self.chosen)

    def show_turns(self, segments: Sequence[SegmentView]) -> None:
        found = [SegmentTurn(number, turn) for number, segment in enumerate(segments) for turn in segment.turns]
        if found == self._places:
            return
        self._places = found
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([Option(render_turn_line(place, many=len(segments) > 1)) for place in found])
        listed.highlighted = 0 if found else None

    def on_option_list_option_highlighted(self) -> None:
        if (place := self.chosen) is not None:
            self.query_one(Static).update(render_turn_text(place.turn))
            self.query_one(VerticalScroll).scroll_home(animate=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        at = self.query_one(OptionList).highlighted
        before = reversed(self._places[: (at or 0) + 1])
        found = next((place.turn.at_s for place in before if place.turn.at_s is not None), None)
        self.post_message(self.Play(found or 0.0))


def render_turn_line(place: SegmentTurn, *, many: bool) -> Text:
    """Return the line of a turn.  Pure."""
    turn = place.turn
    segment = f"{place.segment + 1}." if many else ""
    number = f"{turn.index + 1}" if turn.index >= 0 else ""
    failed = turn.exit_code not in (None, 0)
    parts: list[tuple[str, str]] = [
        (f"{segment + number:>4} ", "bold"),
        (f"{turn.kind:<12}", _KINDS.get(turn.kind, "")),
        (f"{turn.end - turn.start:>6,} tokens ", ""),
        (f"{formatting.format_milliseconds(turn.ms):>8} " if turn.ms else " " * 9, QUIET),
    ]
    if turn.tool:
        parts.append((f"{formatting.truncate_text(turn.tool, 14)} ", ""))
    if turn.exit_code is not None:
        parts.append((f"exit {turn.exit_code} ", BAD if failed else QUIET))
    if turn.role:
        parts.append((f"{turn.role} ", QUIET))
    if turn.malformed:
        parts.append(("malformed ", BAD))
    if turn.cuts:
        parts.append((f"cut {turn.cuts}× ", WARN))
    if turn.staleness_max is not None:
        parts.append((f"staleness {turn.staleness_max} ", QUIET))
    return Text.assemble(*parts)


def render_turn_text(turn: TurnView) -> Text:
    """Return the figures and the text of a turn.  Pure."""
    figures: list[str] = []
    if turn.index >= 0:
        mean = formatting.format_decimal(turn.logprob_mean, 3)
        gap, most = map(formatting.format_short, (turn.logprob_gap_mean, turn.logprob_gap_max))
        figures = [f"{turn.sampled:,} sampled, {turn.trained:,} trained", f"mean log π {mean}",
                   f"log-prob gap {gap}, max {most}",
                   f"version {turn.version or formatting.MISSING}"]  # fmt: skip
    if turn.reward:
        figures.append(f"reward {formatting.format_decimal(turn.reward, 3)}")
    if turn.mixed_prefix:
        figures.append("prefix from several versions")
    if turn.cut_chars:
        figures.append(f"{turn.cut_chars:,} characters left out")
    head = Text("  ·  ".join(figures) + "\n\n", QUIET) if figures else Text()
    return Text.assemble(head, turn.text)
