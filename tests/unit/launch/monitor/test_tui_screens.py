"""The terminal monitor as a person uses it, by keys, on runs that the real writers wrote.  If these fail, somebody who
asks why a trajectory failed does not get there, or what is shown is not what the run's files say."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from launch.bench.monitor.synthetic_run import write_synthetic_run
from launch.monitor.run_follower import RunFollower
from launch.monitor.tui.views.player import RecordingPlayer
from launch.monitor.tui.views.token_view import TokenView
from launch.monitor.tui.views.trajectory_list import TrajectoryList
from launch.run_records.run_lock import hold_run_lock
from protocol import codec
from protocol.activity import ActivityLog
from protocol.events import EventLog
from protocol.run_directory.trajectory_export import TrajectoryExporter
from tests.support.fakes.fake_run import FakeRun, write_fake_run
from tests.support.pages.tui import open_monitor
from tests.support.runs.trajectories import make_trajectory

COUNT = 256
PICTURE = Path(__file__).parents[4] / "docs" / "monitor-tui.svg"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "history"
    write_synthetic_run(run_dir, COUNT)
    return run_dir


BUSY = {
    "learner": {"waiting": 4.0, "training": 2.5, "publishing": 0.5},
    "engine-0": {"generating": 6.4, "paused": 0.2, "loading": 0.4},
    "worker-0": {"starting": 0.5, "generating": 4.0, "tool": 1.5, "grading": 1.0},
    "worker-1": {"generating": 3.0, "tool": 2.0, "grading": 1.5, "delivering": 0.5},
}


def write_activity(run_dir: Path, name: str, states: dict[str, float]) -> None:
    """Write the activity of a process that repeats ``states`` over two minutes."""
    clock = [1_795_000_300.0]
    activity = ActivityLog(run_dir, name, name.partition("-")[0], lambda: clock[0], lambda: clock[0])
    for _ in range(17):
        for state, seconds in states.items():
            with activity.track(state):
                clock[0] += seconds
            activity.write_if_changed()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run with six episodes under way, that has something to say, and a vocabulary."""
    run_dir = tmp_path_factory.mktemp("runs") / "demo-1"
    write_fake_run(run_dir, steps=12, finished=False)
    log = EventLog(run_dir, "driver-2", "node-0", lambda: 1_795_000_400.0, steady=None)
    log.emit("alert.raised", name="zero_variance", text="62 % of groups had one reward: make tasks harder", health=True)
    log.close()
    for name, states in BUSY.items():
        write_activity(run_dir, name, states)
    words = ["ls -la\n", "cat", " input", ".txt", "echo", " 54", " >", " answer", ":", "sort", " -k2", "wc", "The sum"]
    pieces = {words[token % len(words)] + ("" if token < len(words) else f" {token}"): token for token in range(112)}
    (run_dir / "model").mkdir()
    tokenizer = {"model": {"vocab": pieces}, "decoder": {"type": "Fuse"}}
    (run_dir / "model" / "tokenizer.json").write_bytes(orjson.dumps(tokenizer))
    with hold_run_lock(run_dir):
        yield run_dir


# -- the way that a person goes ---------------------------------------------------------------------------------------


@pytest.mark.first_case
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_keys_lead_from_the_overview_to_the_tokens_of_the_worst_trajectory(
    history: Path, size: tuple[int, int]
) -> None:
    async with open_monitor(history, size) as person:
        await person.wait_for_text("longshore history", "reward", "Curves", "Trajectories 256")
        await person.press("2")
        await person.wait_for_text("256 trajectories · newest", "g000031-s07")
        await person.press("w")
        await person.wait_for_text("worst · step=last")
        listed = person.app.screen.query_one(TrajectoryList)
        await person.wait_until(lambda: listed.chosen is not None and listed.chosen.reward == 0.0)
        worst = listed.chosen
        assert worst is not None
        await person.press("enter")
        await person.wait_for_text(worst.id, "reward 0.00", "0 of 2 tests", "model", "shell_exec")
        await person.press("o")
        await person.wait_for_text("probability", "≥ 0.9", f"token {64} of 320", "trained")
        await person.press("c", "right")
        await person.wait_for_text("staleness", "token 65 of 320")
        await person.press("u")
        await person.wait_for_text(f"group {worst.group}", "sample 0", "advantage", "outcome")
        await person.press("escape", "escape")
        await person.wait_for_text("worst · step=last")


@pytest.fixture
def recorded(history: Path, tmp_path: Path) -> Path:
    """A run whose newest trajectory has a terminal of four turns, a second each."""
    run_dir = tmp_path / "recorded"
    shutil.copytree(history, run_dir)
    turns = [((turn, "m", f"turn {turn}"), (turn + 0.5, "o", f"did {turn}\r\n")) for turn in range(4)]
    lines = [{"version": 2, "width": 90, "height": 20, "title": "do it"}, *(event for turn in turns for event in turn)]
    cast = run_dir / "terminals" / "train-g000031-s07-a0.cast"
    cast.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return run_dir


async def test_a_terminal_begins_at_the_turn_that_was_chosen(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingPlayer, "tick", lambda player: None)  # time stands still
    async with open_monitor(recorded) as person:
        await person.press("2")
        await person.wait_for_text("g000031-s07")
        await person.press("enter")
        await person.wait_for_text("shell_exec", "exit 0")
        await person.press("down", "down", "down", "enter")  # the second turn of the model
        text = await person.wait_for_text("did 0", "turn 2/4", "▶")
        assert "did 1" not in text
        await person.press("n")
        await person.wait_for_text("did 1", "turn 3/4")
        await person.press("b", "b")
        await person.wait_for_text("turn 1/4")
        await person.press("end")
        await person.wait_for_text("did 3")
        await person.press("i")
        await person.wait_for_text("engine, worker, node", "generate", "✗ whole")


@pytest.mark.slow
async def test_a_terminal_plays_to_its_end(recorded: Path) -> None:
    async with open_monitor(recorded) as person:
        await person.press("2")
        await person.wait_for_text("g000031-s07")
        await person.press("enter")
        await person.wait_for_text("shell_exec")
        await person.press("p")
        await person.wait_for_text("did 3", "■")
        player = person.app.screen.query_one(RecordingPlayer)
        await person.press("plus", "plus", "home", "space")
        await person.wait_until(lambda: player.moment_s > 3 and not player.playing)
        await person.wait_for_text("did 3", "×4", "■")


async def test_the_group_screen_shows_the_figures_of_the_store(history: Path) -> None:
    follower = RunFollower(history)
    follower.load_initial()
    async with open_monitor(history) as person:
        await person.press("3")
        await person.wait_for_text("32 groups")
        await person.press("enter")
        found = follower.group(31)
        assert found is not None
        text = await person.wait_for_text("group 31", found.row.task)
        rewards = next(line for line in text.splitlines() if line.strip().startswith("reward  "))
        shown = [float(value) for value in rewards.split()[1:]]
        assert shown == [each.row.reward for each in found.members][: len(shown)]


# -- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_list_is_searched_ordered_and_read_to_its_end(history: Path) -> None:
    async with open_monitor(history) as person:
        await person.press("2")
        await person.wait_for_text("256 trajectories")
        await person.press("slash")
        await person.type("passed=false reward_max=0.3 sort")
        await person.press("enter")
        await person.wait_for_text("passed=false reward_max=0.3 sort", "sort-0")
        assert "count-0" not in person.text
        await person.press("slash", "home", "ctrl+k")
        await person.type("colour=red")
        await person.press("enter")
        await person.wait_for_text("unknown parameter 'colour'")
        await person.press("escape")
        await person.wait_for_text("256 trajectories · newest")
        await person.press("s")
        await person.wait_for_text("256 trajectories · oldest", "g000000-s00")
        rows = person.app.screen.query_one("#trajectories", TrajectoryList).table
        for known in (200, 256):
            await person.press("G")
            await person.wait_until(lambda known=known: rows.row_count == known)
        await person.press("t", "t")
        await person.wait_for_text("state=trained")


@pytest.mark.slow
async def test_a_paused_list_counts_the_rows_that_it_has_not_shown(tmp_path: Path) -> None:
    run_dir = tmp_path / "growing"
    run = FakeRun(run_dir, steps=4)
    run.begin()
    run.train_step(1)
    before = run.counts["acknowledged"]
    async with open_monitor(run_dir) as person:
        await person.press("2")
        await person.wait_for_text(f"{before} trajectories", "● following")
        await person.press("j", "j")
        await person.wait_for_text("paused")
        chosen = person.app.screen.query_one(TrajectoryList).chosen
        run.train_step(2)
        new = run.counts["acknowledged"] - before
        await person.wait_for_text(f"▲ {new} new")
        assert person.app.screen.query_one(TrajectoryList).chosen == chosen
        await person.press("f")
        await person.wait_for_text(f"{before + new} trajectories", "● following")
    run.close()


# -- live -------------------------------------------------------------------------------------------------------------


async def test_the_overview_shows_advice_and_current_activity(running: Path) -> None:
    async with open_monitor(running, (120, 60)) as person:
        text = await person.wait_for_text(
            "62 % of groups had one reward: make tasks harder", "engine-0", "serving", "before"
        )
        assert "sum_column" in text
        await person.wait_for_text(*(state for states in BUSY.values() for state in states))


async def test_terminals_are_watched_while_they_are_written(tmp_path: Path) -> None:
    run_dir = tmp_path / "live"
    write_fake_run(run_dir, steps=3, finished=False)
    with hold_run_lock(run_dir):
        async with open_monitor(run_dir) as person:
            await person.press("4")
            await person.wait_for_text("6 episodes running", "· 0", "· 5")
            name = sorted(run_dir.glob("terminals/*.cast"))[-6].stem
            with (run_dir / "terminals" / f"{name}.cast").open("ab") as cast:
                cast.write(orjson.dumps([99.0, "o", "and \x1b[32mmore\x1b[0m\x1b]0;x\x07\r\n"]) + b"\n")
            await person.wait_for_text("and more")
            await person.press("enter")
            await person.wait_for_text(name, "live", "and more")
            await person.press("escape")
            await person.wait_for_text("6 episodes running")


@pytest.mark.slow
async def test_the_log_leads_to_its_trajectory(running: Path) -> None:
    async with open_monitor(running) as person:
        await person.press("5")
        await person.wait_for_text("without details", "make tasks harder")
        await person.press("slash")
        await person.type("reward turns")
        await person.press("enter")
        await person.wait_for_text("without details · reward turns", "turns in")
        await person.press("enter")
        await person.wait_for_text("Turns", "Tokens", "tests")


async def test_the_token_view_shows_the_text_of_tokens(running: Path) -> None:
    async with open_monitor(running) as person:
        await person.press("2")
        await person.wait_for_text("● following", "g0000")
        await person.press("enter")
        await person.wait_for_text("Turns", "tests")
        await person.press("o")
        await person.wait_for_text("cat input", "p 0.905")
        tokens = person.app.screen.query_one(TokenView)
        assert tokens.page is not None
        assert tokens.page.text[1] == "cat"


# -- keys, sizes, themes ----------------------------------------------------------------------------------------------


async def test_every_page_lists_its_keys(history: Path) -> None:
    async with open_monitor(history, (80, 50)) as person:
        await person.press("question_mark")
        await person.wait_for_text("Everywhere", "Light or dark", "Quit")
        await person.press("escape", "2")
        await person.wait_for_text("256 trajectories")
        await person.press("question_mark")
        await person.wait_for_text("Worst", "Search", "Order", "Follow")


@pytest.mark.slow
async def test_the_monitor_is_readable_in_light_and_dark_and_after_a_resize(history: Path) -> None:
    async with open_monitor(history, (80, 24), light=True) as person:
        await person.press("2")
        await person.wait_for_text("256 trajectories")
        assert "advantage" not in person.text
        assert max(map(len, person.text.splitlines())) <= 80
        await person.press("d")
        assert person.app.theme == "textual-dark"
        await person.resize(140, 40)
        await person.wait_for_text("advantage", "gap")


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_removed_run_is_reported_and_its_lists_stay_readable(history: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "removed"
    shutil.copytree(history, run_dir)
    async with open_monitor(run_dir, (160, 40)) as person:
        await person.press("2")
        await person.wait_for_text("256 trajectories")
        shutil.rmtree(run_dir)
        await person.wait_for_text("was removed while this monitor watched it", "g000031-s07")
        await person.press("enter")
        await person.wait_for_text("cannot be read")
        await person.press("escape", "4", "5", "1")
        await person.wait_for_text("was removed")


async def test_a_damaged_run_is_shown_as_far_as_it_can_be_read(history: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "damaged"
    shutil.copytree(history, run_dir)
    for segment in run_dir.glob("trajectories/trajectories-*.bin"):
        segment.write_bytes(os.urandom(segment.stat().st_size))
    with (run_dir / "trajectories" / "index.jsonl").open("ab") as index:
        index.write(b"{not json}\n\xff\xfe\n")
    for cast in run_dir.glob("terminals/*.cast"):
        cast.write_bytes(os.urandom(2_000) + b"\n")
    async with open_monitor(run_dir) as person:
        await person.press("2")
        await person.wait_for_text("2 lines of this run's files are damaged and were left out", "256 trajectories")
        await person.press("enter")
        await person.wait_for_text("cannot be read")
        await person.press("u", "escape", "3")
        await person.wait_for_text("32 groups")
        await person.press("enter")
        await person.wait_for_text("group 31", "cannot be read")


async def test_an_empty_folder_is_shown_as_a_run_without_data(tmp_path: Path) -> None:
    async with open_monitor(tmp_path, (80, 24)) as person:
        await person.wait_for_text("waiting for the first event", "No optimizer step yet.")
        for key, text in (("2", "0 trajectories"), ("3", "0 groups"), ("4", "No episode is running"), ("5", "0 lines")):
            await person.press(key)
            await person.wait_for_text(text)
        await person.press("enter", "w", "u")


async def test_text_of_a_sandbox_is_never_markup(tmp_path: Path) -> None:
    run_dir = tmp_path / "markup"
    (run_dir / "trajectories").mkdir(parents=True)
    made = make_trajectory(group=1)
    trajectory = replace(made, request=replace(made.request, task="[red]bold[/] \x1b[31mtask[@click=app.quit]"))
    blob = codec.pack_trajectory(trajectory)
    TrajectoryExporter(run_dir, now=lambda: 1.0).export_trajectory(codec.inspect_blob(blob), blob)
    async with open_monitor(run_dir, (160, 40)) as person:
        await person.press("2")
        await person.wait_for_text("[red]bold[/] task[@click=app.quit]")
        await person.press("enter")
        await person.wait_for_text("[red]bold[/] task[@click=app.quit]")


async def test_a_slow_disk_does_not_block_the_keys(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a file can still go elsewhere, and leave."""
    reached, resume_command = threading.Event(), threading.Event()
    whole = RunFollower.group

    def slow(self: RunFollower, number: int):
        reached.set()
        assert resume_command.wait(60)
        return whole(self, number)

    monkeypatch.setattr(RunFollower, "group", slow)
    async with open_monitor(history) as person:
        try:
            await person.press("3")
            await person.wait_for_text("32 groups")
            await person.press("enter")
            await person.wait_until(reached.is_set)
            await person.press("2")
            await person.wait_for_text("256 trajectories")
        finally:
            resume_command.set()


# -- the picture in the docs ------------------------------------------------------------------------------------------


async def test_the_picture_in_the_docs(running: Path) -> None:
    """``LONGSHORE_WRITE_PICTURES=1`` writes it anew."""
    async with open_monitor(running, (120, 49)) as person:
        await person.wait_for_text(
            "make tasks harder", "engine-0", "Trajectories", "Longest running", "training  ", "Help"
        )
        picture = re.sub(r"@font-face \{.*?\}\s*", "", person.app.export_screenshot(title="longshore"), flags=re.DOTALL)
    assert not re.search(r"""url\(["']?http|href=|src=""", picture), "whoever reads the page would ask somebody else"
    if os.environ.get("LONGSHORE_WRITE_PICTURES"):
        PICTURE.write_text(picture, encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8").count("<text") > 100
