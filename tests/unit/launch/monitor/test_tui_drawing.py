"""The drawing of the terminal monitor, without a terminal. If these fail, a person reads figures, tokens or a terminal
that are not the run's, or what a sandbox printed reaches their own terminal."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.monitor.api_types import ActivityTimeline, ActivityTrack, RunProgress, TokenPage, TokenUse, TrajectoryState
from launch.monitor.archive.query_parameters import GROUP_LIST, TRAJECTORY_LIST, InvalidQueryError
from launch.monitor.text_plots import braille_curve, sparkline
from launch.monitor.tui.drawing import styles
from launch.monitor.tui.drawing.activity_timeline import render_activity
from launch.monitor.tui.drawing.playback import (
    MAX_IDLE_S,
    LiveScreen,
    RecordingPlayback,
    playback_times,
    read_playback,
)
from launch.monitor.tui.drawing.terminal_screen import render_screen
from launch.monitor.tui.drawing.token_colours import (
    TokenColouring,
    describe_token,
    render_tokens,
    token_style,
    wrap_tokens,
)
from launch.monitor.tui.views import search_line
from launch.monitor.tui.views.header import render_head_line
from launch.monitor.tui.views.log_view import EventLogReader
from protocol.cli import formatting
from protocol.events import EventLog
from protocol.run_directory.run_status import RunStatus
from protocol.run_directory.terminal_recordings import CastWriter, turn_marker_label
from sandbox.session.terminal_emulator import TerminalEmulator

finite = st.floats(allow_nan=False, allow_infinity=False)


# -- curves -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.none() | finite, max_size=40), st.integers(1, 30), st.integers(1, 5))
def test_a_curve_fills_its_area_for_any_values(values, width: int, height: int) -> None:
    lines = braille_curve(values, width, height)
    assert [len(line) for line in lines] == [width] * height
    assert all(0x2800 <= ord(char) <= 0x28FF for line in lines for char in line)


@given(st.lists(finite, min_size=2, max_size=40))
def test_the_largest_value_is_the_highest_tick(values: list[float]) -> None:
    ticks = sparkline(values, len(values))
    assert len(ticks) == len(values)
    assert ticks[values.index(max(values))] == max(ticks)


def test_a_curve_that_rises_ends_above_where_it_began() -> None:
    low, high = braille_curve([0.0, 1.0], 4, 2)[1], braille_curve([0.0, 1.0], 4, 2)[0]
    assert low[0] != "⠀"
    assert high[-1] != "⠀"
    assert high[0] == low[-1] == "⠀"


# -- tokens -----------------------------------------------------------------------------------------------------------


def page_of(texts: list[str], use: TokenUse = TokenUse.TRAINED) -> TokenPage:
    count = len(texts)
    return TokenPage(
        segment=0, start=0, end=count, total=count, id=list(range(count)), text=texts, logprob=[-0.1] * count,
        probability=[0.95] * count, version=["1.0"] * count, staleness=[1] * count, use=[use] * count,
        learner_logprob=[-0.1] * count, logprob_gap=[0.2] * count, advantage=[-1.0] * count,
    )  # fmt: skip


@given(st.lists(st.text(st.sampled_from("ab \n\t界é"), max_size=6), max_size=12), st.integers(2, 12))
def test_each_token_is_shown_in_order_and_no_line_is_too_long(texts: list[str], width: int) -> None:
    lines = wrap_tokens(page_of(texts), width)
    shown = [piece.token for line in lines for piece in line]
    assert sorted(set(shown)) == list(range(len(texts)))
    assert shown == sorted(shown)
    for line in lines:
        assert len(line) == 0 or sum(2 if char == "界" else 1 for piece in line for char in piece.text) <= width
    for token, text in enumerate(texts):
        drawn = "".join(piece.text for line in lines for piece in line if piece.token == token)
        assert drawn == (text.replace("\t", "→   ").replace("\n", "⏎") or "·")


def test_colours_say_what_a_token_is() -> None:
    page = page_of(["a", "b"])
    assert {by: token_style(page, 0, by) for by in TokenColouring} == {
        TokenColouring.PROBABILITY: styles.GOOD,
        TokenColouring.STALENESS: "cyan",
        TokenColouring.USE: styles.GOOD,
        TokenColouring.GAP: styles.WARN,
        TokenColouring.ADVANTAGE: styles.BAD,
    }
    assert {token_style(page_of(["a"], TokenUse.PROMPT), 0, by) for by in TokenColouring} == {styles.QUIET}
    assert render_tokens(page, wrap_tokens(page, 10), TokenColouring.STALENESS, 1).plain == "ab"
    assert "p 0.950" in describe_token(page, 1).plain
    assert describe_token(page_of([]), 0).plain == "no tokens"


# -- recordings -------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6), max_size=30))
def test_playback_never_goes_back_and_has_no_long_waits(times: list[float]) -> None:
    film = playback_times(times)
    gaps = [after - before for before, after in zip([0.0, *film], film, strict=False)]
    assert all(-1e-6 <= gap <= MAX_IDLE_S + 1e-6 for gap in gaps)


@given(
    st.lists(st.sampled_from(["one\r\n", "\x1b[31mred\x1b[0m", "\x1b[2J\x1b[H", "x" * 30, "\b\b"]), max_size=12),
    st.data(),
)
def test_the_screen_at_a_moment_does_not_depend_on_earlier_seeks(texts: list[str], data) -> None:
    events = [(float(at), text) for at, text in enumerate(texts)]
    reel = RecordingPlayback(events, [0.0], (4, 20))
    moments = data.draw(st.lists(st.floats(0, 20), min_size=1, max_size=5))
    for moment in moments:
        assert reel.screen_at(moment) == RecordingPlayback(events, [], (4, 20)).screen_at(moment)


def write_cast(path: Path) -> Path:
    now = iter([0.0, 0.0, 1.0, 1.0, 50.0, 50.0, 50.0, 51.0, 52.0, 53.0, 54.0, 55.0, 56.0, 57.0])
    with CastWriter.open(path, 40, 6, "do it", clock=lambda: next(now), now=lambda: 0.0) as cast:
        cast.record_marker(turn_marker_label(0))
        cast.record_output("first\n")
        cast.record_marker(turn_marker_label(1))
        cast.record_output("\x1b]0;title\x07second\x1b[5n\n")
    return path


def test_turns_are_where_the_recording_marks_them(tmp_path: Path) -> None:
    reel = read_playback(write_cast(tmp_path / "a.cast"))
    assert len(reel.marks) == 2
    assert reel.length_s < 10, "nobody looks at a wait of most of a minute"
    before, after = (
        render_screen(reel.screen_at(moment), 40, 6).plain for moment in (reel.marks[1] - 0.01, reel.length_s)
    )
    assert "second" not in before
    assert "second" in after
    assert not {"\x1b", "\x07"} & set(after)


def test_a_missing_recording_counts_as_empty(tmp_path: Path) -> None:
    assert read_playback(tmp_path / "none.cast").is_empty
    assert not RecordingPlayback([(0.0, "at once")], []).is_empty
    assert LiveScreen(tmp_path / "none.cast").current_image().cursor == (0, 0)


def test_a_live_terminal_shows_new_output(tmp_path: Path) -> None:
    path = tmp_path / "live.cast"
    with CastWriter.open(path, 40, 6, "") as cast:
        cast.record_output("one\n")
        reel = LiveScreen(path)
        assert "one" in render_screen(reel.current_image(), 40, 6).plain
        cast.record_output("two\n")
        shown = render_screen(reel.current_image(), 40, 6).plain
    assert "one" in shown
    assert "two" in shown


def test_a_small_place_shows_the_lines_at_the_cursor() -> None:
    drawing = TerminalEmulator(10, 20)
    drawing.feed("".join(f"line {number}\r\n" for number in range(9)))
    reel = RecordingPlayback([(0.0, "".join(f"line {number}\r\n" for number in range(9)))], [], (10, 20))
    shown = render_screen(reel.screen_at(1.0), 6, 3).plain.splitlines()
    assert [line.strip() for line in shown] == ["line 7", "line 8", ""]


def test_a_screen_keeps_its_colours() -> None:
    drawing = TerminalEmulator(1, 9)
    drawing.feed("\x1b[1;31mre\x1b[0md \x1b[38;2;1;2;3mx")
    first, second, third, *_ = drawing.styled_row(0)
    assert (first.text, first.color, first.bold) == ("re", "red", True)
    assert (second.text, second.color, second.bold) == ("d ", "default", False)
    assert third.color == "010203"


# -- what is asked and told -------------------------------------------------------------------------------------------


def test_a_search_line_is_parsed_into_filters_and_words() -> None:
    found = search_line.parse_search("step=last state=dropped reward_max=0.5 sort lines", TRAJECTORY_LIST, 7)
    assert (found.step, found.states, found.reward.high, found.words) == (
        7,
        (TrajectoryState.DROPPED,),
        0.5,
        "sort lines",
    )
    assert search_line.parse_search("12", GROUP_LIST, None).words == "12"


@pytest.mark.parametrize("line", ["stat=held", "state=lost", "reward_min=x", "sort=best", "step=-1"])
def test_a_filter_that_makes_no_sense_is_refused_in_one_line(line: str) -> None:
    with pytest.raises(InvalidQueryError) as refused:
        search_line.parse_search(line, TRAJECTORY_LIST, 1)
    assert "\n" not in str(refused.value)


def test_the_log_is_newest_first_and_filtered_by_level_and_words(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "driver", "node-0", time.time, steady=None)
    log.emit("node.up", name="a")
    log.emit("engine.died", engine="engine-0", why="killed")
    log.emit("group.opened", group=1, task="t", size=2)
    sentences = EventLogReader(tmp_path)
    levels = ("info", "good", "warn", "bad")
    page = sentences.read_page("", levels, None, 10)
    assert [row.line.kind for row in page.rows] == ["engine.died", "node.up"]
    assert page.next is None
    first = sentences.read_page("", levels, None, 1)
    assert [row.line.kind for row in sentences.read_page("", levels, int(first.next or 0), 1).rows] == ["node.up"]
    assert sentences.read_page("ENGINE killed", levels, None, 10).total == 1
    log.emit("node.up", name="b")
    assert sentences.read_page("", levels, None, 10).rows[0].line.text == "node b is up"
    log.close()


def test_the_activity_of_each_process_has_a_line_and_a_legend() -> None:
    activity = ActivityTimeline(
        0.0, 10.0, 5.0, [ActivityTrack("engine-0", "engine", {"generating": [0.0, 2.0], "paused": [1.0, 0.0]})]
    )
    line, legend = render_activity(activity).plain.splitlines()
    assert line.split() == ["engine-0", "██"]
    assert "generating" in legend
    assert "paused" in legend
    assert render_activity(ActivityTimeline(0.0, 0.0, 0.0)).plain


@given(st.floats() | st.none())
def test_any_number_has_a_short_format(value: float | None) -> None:
    assert 0 < len(formatting.format_short(value)) <= 9
    assert formatting.format_decimal(value)
    assert formatting.format_percent(value)
    assert formatting.format_duration(value)
    assert formatting.format_time_of_day(value)


def test_a_narrow_head_keeps_the_run_and_its_problem() -> None:
    head = RunProgress("r", 1, RunStatus.RUNNING, "training", 3, 9, 4, 5, 6, 0.5, 0.25, 100.0, 0, "it is gone")
    assert render_head_line(head, 20, 101.0).plain.splitlines() == ["longshore r", "it is gone"]
    assert "● paused" in render_head_line(replace(head, flow="paused"), 200, 101.0).plain
    wide = render_head_line(head, 200, 101.0).plain
    assert all(text in wide for text in ("● running", "step 3/9", "pass 25.0 %", "4 running", "1 s ago"))
