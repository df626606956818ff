"""Shows one trajectory: its outcome, turns, tokens and terminal."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import ContentSwitcher, OptionList, Static

from launch.monitor.api_types import TrajectoryDetail
from launch.monitor.archive.token_facts import LocatedTrajectory
from launch.monitor.archive.trajectory_details import read_trajectory_detail
from launch.monitor.run_follower import RunFollower
from launch.monitor.tui.drawing import styles
from launch.monitor.tui.drawing.styles import BAD, GOOD, QUIET
from launch.monitor.tui.views.base import GroupRequested, MonitorView, focus_first
from launch.monitor.tui.views.header import Tab, TabLine
from launch.monitor.tui.views.player import RecordingPlayer
from launch.monitor.tui.views.token_view import TokenView
from launch.monitor.tui.views.turn_list import TurnList
from protocol.cli import formatting
from protocol.run_directory.recording_reader import recording_path

_TABS = (
    Tab("t", "turns", "Turns"),
    Tab("o", "tokens", "Tokens"),
    Tab("p", "terminal", "Terminal"),
    Tab("i", "facts", "Details"),
)


class TrajectoryView(MonitorView):
    """One trajectory."""

    DEFAULT_CSS = """
    TrajectoryView > #about { height: auto; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    TrajectoryView > #about.problem { text-wrap: wrap; }
    TrajectoryView > ContentSwitcher { height: 1fr; }
    TrajectoryView #facts { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "part('turns')", "Turns", show=False),
        Binding("o", "part('tokens')", "Tokens", show=False),
        Binding("p", "part('terminal')", "Terminal", show=False),
        Binding("i", "part('facts')", "Details", show=False),
        Binding("u", "group", "Group"),
    ]

    def __init__(self, follower: RunFollower, trajectory: str) -> None:
        super().__init__(follower)
        self.trajectory = trajectory
        self._shown: TrajectoryDetail | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="about")
        yield TabLine(_TABS)
        with ContentSwitcher(initial="turns"):
            yield TurnList(id="turns")
            yield TokenView(self.follower, id="tokens")
            yield RecordingPlayer(None, id="terminal")
            with VerticalScroll(id="facts"):
                yield Static(id="all")

    async def load(self) -> None:
        where = await asyncio.to_thread(self.follower.locate, self.trajectory)
        if where is None:
            self.show_error(f"{self.follower.name} has no acknowledged trajectory {self.trajectory}")
            return
        found = await asyncio.to_thread(lambda: read_trajectory_detail(self.follower.read_context(), where))
        if found != self._shown:
            self._show(where, found)

    def show_error(self, line: str) -> None:
        self.query_one("#about", Static).set_class(True, "problem").update(Text(line, BAD))

    def _show(self, where: LocatedTrajectory, found: TrajectoryDetail) -> None:
        before, self._shown = self._shown, found
        self.query_one("#about", Static).set_class(False, "problem").update(render_trajectory_heading(found))
        self.query_one("#all", Static).update(render_trajectory_facts(found))
        self.query_one(TurnList).show_turns(found.segments)
        self.query_one(TokenView).show_tokens(where, found.segments)
        if before is None or before.recording != found.recording:
            path = recording_path(self.follower.run_dir, where.row.recording) if found.recording else None
            self.query_one(RecordingPlayer).show_recording(path)
        if before is None:
            self.query_one(OptionList).focus()

    def on_tab_line_chosen(self, event: TabLine.Chosen) -> None:
        self.action_part(event.name)

    def on_turn_list_play(self, event: TurnList.Play) -> None:
        self.action_part("terminal")
        self.query_one(RecordingPlayer).play_from(event.at_s)

    def action_part(self, name: str) -> None:
        if name == "tokens" and (first := self.query_one(TurnList).first_sampled) is not None:
            self.query_one(TokenView).go_to_token(first.segment, first.turn.start)
        self.query_one(ContentSwitcher).current = name
        self.query_one(TabLine).select(name)
        focus_first(self.query_one(f"#{name}"))

    def action_group(self) -> None:
        if self._shown is not None:
            self.post_message(GroupRequested(self._shown.row.group))


def render_trajectory_heading(found: TrajectoryDetail) -> Text:
    """Return the lines above the tabs.  Pure."""
    row = found.row
    tests = f"{sum(test.passed for test in found.tests)} of {len(found.tests)} tests" if found.tests else "no tests"
    parts: list[str | Text | tuple[str, str]] = [
        (f"{row.id}  ", "bold"), f"{row.task}  ", styles.render_state(row.state, row.reason),
        ("" if row.step is None else f" at step {row.step}", QUIET), f"  {formatting.humanize_name(row.status)}",
        "\nreward ", styles.render_reward(row.reward), (f"  {_parts(found)}", QUIET),
        f"  {tests}  advantage {formatting.format_decimal(row.advantage)}",
        (f"  log-prob gap {formatting.format_short(row.logprob_gap)}", QUIET),
        (f"  {row.sampled:,} of {row.tokens:,} tokens sampled", QUIET),
    ]  # fmt: skip
    if found.error:
        parts.append((f"\n{formatting.one_line(found.error)}", BAD))
    elif found.instruction:
        parts.append((f"\n{formatting.one_line(found.instruction)}", QUIET))
    return Text.assemble(*parts)


def _parts(found: TrajectoryDetail) -> str:
    return " + ".join(f"{name} {value:g}" for name, value in found.parts.items())


def render_trajectory_facts(found: TrajectoryDetail) -> Text:
    """Return the facts that are on no other tab.  Pure."""
    row = found.row
    facts = {
        "instruction": found.instruction,
        "error": found.error,
        "engine, worker, node": ", ".join(
            each or formatting.MISSING for each in (found.engine, found.worker, found.node)
        ),
        "started, acknowledged": ", ".join(map(formatting.format_time_of_day, (found.started_at, row.at))),
        "group, sample": f"{row.group}, {row.sample} of {found.size}",
        "seed, attempt": f"{found.seed}, {row.attempt}",
        "trained weights": found.trained_version or formatting.MISSING,
        "max staleness": formatting.format_decimal(found.max_staleness, 0),
    }
    lines = [Text.assemble((f"{name:<24}", QUIET), value) for name, value in facts.items() if value]
    lines += [Text(), Text("time", "bold")]
    lines += [
        Text.assemble((f"  {name:<22}", QUIET), formatting.format_milliseconds(ms)) for name, ms in found.ms.items()
    ]
    lines += [Text(), Text("reward", "bold")]
    lines += [
        Text.assemble((f"  {name:<22}", QUIET), formatting.format_decimal(value, 3))
        for name, value in found.parts.items()
    ]
    lines += [Text(), Text("tests", "bold")]
    lines += [
        Text.assemble(
            "  ", ("✓ ", GOOD) if test.passed else ("✗ ", BAD), test.name, (f"  weight {test.weight:g}", QUIET)
        )
        for test in found.tests
    ]
    return Text("\n").join(lines)
