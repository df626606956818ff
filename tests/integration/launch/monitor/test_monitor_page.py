"""The monitor's page in a real browser, clicked through as a person does.  If these fail, somebody cannot find the
worst trajectory, see why it failed, or hand it on; or the page asks somebody else for something, or runs what a sandbox
printed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launch.bench.monitor.synthetic_run import write_synthetic_run
from launch.pages.packages import package_file
from launch.run_records.run_lock import hold_run_lock
from protocol.events import EventLog
from protocol.run_directory.page_pictures import PictureWriter, pictures_path
from protocol.run_directory.terminal_recordings import CastWriter
from tests.support.pages.browser import Page, chromium, open_page
from tests.support.pages.monitors import Monitor, start_monitor
from tests.support.pages.page_pictures import make_picture
from tests.support.pages.screenshots import NARROW, WIDE, assert_drawn, save_screenshot
from tests.support.runs.example_run import INSTRUCTION, write_example_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here: make setup as root, or apt-get install chromium"),
    pytest.mark.skipif(
        package_file("uplot.js") is None, reason="the page's packages are not here: make setup with a network"
    ),
]

RUN = "demo-42"
ONE = "train-g000005-s01"
PLAYER = "document.querySelector('.recording .ap-term')"
TOKEN_FACTS = [
    *("probability", "log p, engine", "log p, learner", "gap"),
    *("weights", "staleness, steps", "loss mask", "advantage"),
]
HOSTILE = '<img src=x onerror="document.title=\'taken\'"></script><script>document.title="taken"</script>'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Monitor, Path]]:
    """A run that goes on: its lock is held."""
    run_dir = tmp_path_factory.mktemp("runs") / RUN
    write_example_run(run_dir, steps=12, taken=8, seconds=300)
    write_synthetic_run(run_dir.parent / "history", 64)
    recording = next(run_dir.glob(f"terminals/{ONE}*.cast")).stem
    pictures = PictureWriter(pictures_path(run_dir, recording), 1 << 20)
    for turn in range(2):
        pictures.record(turn, make_picture(f"Page {turn}"))
    with hold_run_lock(run_dir), start_monitor(run_dir) as monitor:
        yield monitor, run_dir


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with open_page(tmp_path / "profile") as opened:
        await opened.set_viewport(*WIDE)
        await opened.set_color_scheme("light")
        yield opened


async def fits(page: Page) -> None:
    """Nothing makes the page wider than the window."""
    await page.wait_until("document.documentElement.scrollWidth <= innerWidth")


def only_asked(page: Page, url: str) -> None:
    foreign = [requested for requested in page.requests if not requested.startswith((url, "data:", "about:", "blob:"))]
    assert not foreign
    assert page.errors == []


async def test_clicks_lead_from_the_overview_to_the_worst_trajectory_its_tokens_and_its_group(served, page: Page):
    """Overview, worst of the last step, its turns beside its terminal, its tokens, its group."""
    monitor, run_dir = served
    await page.open(monitor.address)
    await page.wait_for_text("the disk of the run directory has 3.1 GB left")
    await page.wait_until("document.querySelectorAll('.overview .curve canvas').length === 6")
    await page.wait_until("document.querySelectorAll('.activity-track[data-kind=worker] path').length > 2")
    assert await page.wait_for_value("document.querySelector('.alerts li').className") == "health", "health comes first"
    await page.wait_for_text("training")
    await assert_drawn(page, "overview")

    await page.click("a.button", "All trajectories of the step")
    await page.wait_until("location.hash.includes('step=last') && location.hash.includes('sort=worst')")
    rewards = "[...document.querySelectorAll('tbody .reward b')].map(e => Number(e.textContent))"
    await page.wait_until(
        f"{rewards}.length > 4 && {rewards}.every((reward, row, all) => row === 0 || all[row - 1] <= reward)"
    )
    worst = await page.wait_for_value("document.querySelector('tbody a').textContent")
    await assert_drawn(page, "trajectories")

    await page.press("j")
    await page.press("Enter")
    await page.wait_for_text(INSTRUCTION)
    await page.wait_until(f"location.hash.endsWith({json.dumps(worst)})")
    await page.wait_until(
        "document.querySelectorAll('.turn.model').length >= 4 && document.querySelectorAll('.marks button').length >= 4"
    )
    await page.wait_for_text("of 4 passed")
    await replay(page)
    await assert_drawn(page, "trajectory")
    await look_at_tokens(page)

    await page.click("a.button", "Group")
    await page.wait_until("document.querySelectorAll('th.member').length === 8")
    for shown in ("part: tests", "advantage", "sampled tokens"):
        await page.wait_for_text(shown)
    await assert_drawn(page, "group")
    only_asked(page, monitor.url)
    assert (run_dir / "config.json").exists()


async def replay(page: Page) -> None:
    """A click on a turn goes there in the terminal; a click on a mark, too; and playing moves the mark."""
    await page.wait_until(PLAYER)
    await page.click(".turn.model .turn-head", "Turn 3")
    await page.wait_until("document.querySelector('.turn.current')?.dataset.turn === '2'")
    await page.wait_until("document.querySelector('.marks [aria-current=true]')?.textContent === '3'")
    await page.click(".marks button", "1")
    await page.wait_until("document.querySelector('.turn.current')?.dataset.turn === '0'")
    await page.evaluate("document.activeElement.blur()")
    await page.press(" ")
    await page.wait_until("Number(document.querySelector('.turn.current').dataset.turn) > 0")
    await page.press(" ")


async def look_at_tokens(page: Page) -> None:
    await page.click(".turn.model .turn-foot button", "Tokens")
    await page.wait_until("document.querySelectorAll('.stream [data-at]').length > 100")
    facts = "document.querySelector('.token-facts').innerText"
    await page.wait_until(f"{json.dumps(TOKEN_FACTS)}.every(word => {facts}.includes(word))")
    before = await page.evaluate(facts)
    await page.evaluate("document.querySelector('.stream').focus()")
    await page.press("ArrowRight")
    await page.wait_until(f"{facts} !== {json.dumps(before)}")
    await page.wait_until("location.hash.includes('token=')")
    await page.wait_until("new Set([...document.querySelectorAll('.stream [data-at]')].map(e => e.className)).size > 4")
    await assert_drawn(page, "tokens")


async def test_every_page_opens_at_both_widths_and_in_both_colour_schemes(served, page: Page):
    monitor, _ = served
    ready = {
        "": "document.querySelectorAll('.curve canvas').length === 6 && document.querySelector('.activity-track path')",
        "curves": "document.querySelectorAll('.curve canvas').length > 15",
        "steps": "document.querySelectorAll('tbody tr').length === 8",
        "steps/7": "document.querySelector('.bars') && document.querySelectorAll('tbody tr').length > 4",
        "groups": "document.querySelectorAll('tbody tr').length > 20",
        "groups/5": "document.querySelectorAll('th.member').length === 8",
        "trajectories": "document.querySelectorAll('tbody tr').length === 50",
        f"trajectories/{ONE}": f"{PLAYER} && document.querySelectorAll('.turn').length > 6",
        "terminals": (
            "[...document.querySelectorAll('.terminals .screen')].filter(e => e.innerText.length > 40).length > 8"
        ),
        "log": "document.querySelectorAll('.log li').length > 20",
    }
    for light, size in (("dark", WIDE), ("light", NARROW)):
        await page.set_color_scheme(light)
        await page.set_viewport(*size)
        for where, is_ready in ready.items():
            await page.open(f"{monitor.url}/#/run/{RUN}/{where}".rstrip("/"))
            await page.wait_until(is_ready)
            await fits(page)
            await assert_drawn(page, f"{where or 'overview'}, {light}")
    await page.open(f"{monitor.url}/#/runs")
    await page.wait_for_text("history")
    only_asked(page, monitor.url)


async def test_filters_are_kept_in_the_address_and_curves_can_be_searched(served, page: Page):
    monitor, _ = served
    await page.open(f"{monitor.url}/#/run/{RUN}/trajectories?status=turn_limit")
    await page.wait_until(
        "document.querySelectorAll('tbody tr').length"
        " && [...document.querySelectorAll('tbody td:nth-child(5)')].every(e => e.textContent === 'turn limit')"
    )
    await page.press("/")
    await page.wait_until("document.activeElement.name === 'q'")
    await page.type("no such task")
    await page.wait_for_text("No trajectory matches.")
    await page.wait_until("location.hash.includes('q=no+such+task') && location.hash.includes('status=turn_limit')")
    await page.click("button", "Clear")
    await page.wait_until("document.querySelectorAll('tbody tr').length === 50 && !location.hash.includes('?')")
    await page.click("button", "More")
    await page.wait_until("document.querySelectorAll('tbody tr').length === 100")
    await page.open(f"{monitor.url}/#/run/{RUN}/curves?q=clip")
    await page.wait_until("document.querySelectorAll('.curve canvas').length === 3")
    await page.click("button", "Reward")
    await page.wait_for_text("No metric matches.")
    only_asked(page, monitor.url)


async def test_the_page_can_be_used_by_keys_alone(served, page: Page):
    monitor, _ = served
    await page.open(f"{monitor.url}/#/run/{RUN}")
    await page.wait_until("document.querySelector('.cards')")
    await page.press("?")
    await page.wait_until("document.querySelector('dialog').open")
    await page.press("Escape")
    await page.wait_until("!document.querySelector('dialog').open")
    for keys, where in (("gs", "steps"), ("gg", "groups"), ("gw", "terminals"), ("gl", "log"), ("gt", "trajectories")):
        await page.press(keys[0])
        await page.press(keys[1])
        await page.wait_until(f"location.hash === '#/run/{RUN}/{where}'")
    await page.wait_until("document.querySelectorAll('tbody tr').length")
    await page.press("j")
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "where one is can be seen"
    await page.press("Enter")
    await page.wait_until("document.querySelector('.trajectory')")
    await page.press("u")
    await page.wait_until(f"location.hash === '#/run/{RUN}/trajectories'")
    for name in ("light", "dark"):
        await page.press("t")
        await page.wait_until(f"document.documentElement.dataset.theme === '{name}'")
    only_asked(page, monitor.url)


@contextmanager
def growing(run_dir: Path, name: str) -> Iterator[CastWriter]:
    with CastWriter.open(run_dir / "terminals" / f"{name}.cast", 80, 24, "a hostile task") as cast:
        yield cast


async def test_new_events_appear_at_once_and_markup_in_them_stays_text(served, page: Page):
    """A new episode's terminal joins the wall and the log; markup that a sandbox prints stays text."""
    monitor, run_dir = served
    log = EventLog(run_dir, "worker-9", "node-0")
    await page.open(f"{monitor.url}/#/run/{RUN}/terminals?places=32")
    await page.wait_until("document.querySelectorAll('.terminals .viewer').length >= 10")
    name = "train-g009999-s00-a0"
    with growing(run_dir, name) as cast:
        log.emit(
            "episode.started",
            trajectory=name,
            group=9999,
            sample=0,
            task=HOSTILE,
            family="x",
            instruction=HOSTILE,
            worker="worker-9",
        )
        await page.wait_until(f"document.querySelector('[data-recording={name}]')")
        cast.record_output(HOSTILE + "\nfirst line\n")
        await page.wait_for_text("first line")
        cast.record_output("second line\n")
        await page.wait_for_text("second line")
    await page.open(f"{monitor.url}/#/run/{RUN}/log")
    await page.wait_until("document.querySelectorAll('.log li').length > 10")
    await page.evaluate("document.querySelector('.log').scrollTop = 0")
    log.emit("engine.died", engine="engine-0", why=HOSTILE)
    await page.wait_until(
        "[...document.querySelectorAll('button.fresh')].some(e => !e.hidden && e.innerText.includes('unseen'))"
    )
    await page.click("button.fresh", "unseen")
    await page.wait_until(
        "document.querySelector('.log li.bad, .log li.warn')"
        " && [...document.querySelectorAll('button.fresh')].every(e => e.hidden)"
    )
    log.emit("episode.cancelled", trajectory=name)
    log.close()
    assert await page.evaluate("document.querySelectorAll('main img').length") == 0
    assert "taken" not in await page.evaluate("document.title")
    only_asked(page, monitor.url)


async def test_a_trajectory_and_a_group_open_from_one_file_without_a_network(served, page: Page, tmp_path: Path):
    monitor, _ = served
    await page.open(f"{monitor.url}/#/run/{RUN}/trajectories/{ONE}")
    await page.wait_until("document.querySelector('a[download]')")
    for address, opens in (
        (f"trajectories/{ONE}", PLAYER),
        ("groups/5", "document.querySelectorAll('th.member').length === 8"),
    ):
        text = await page.evaluate(f"fetch('/api/runs/{RUN}/{address}/export').then(answer => answer.text())")
        (tmp_path / "kept.html").write_text(text)
        await page.open("about:blank")
        await page.wait_until("location.href === 'about:blank'")
        page.requests.clear()
        await page.set_offline(offline=True)
        await page.open(f"file://{tmp_path / 'kept.html'}")
        await page.wait_until(opens)
        if "groups" in address:
            await page.click("th.member a", "sample 1")
            await page.wait_until(PLAYER)
        await page.click(".turn-foot button", "Tokens")
        await page.wait_until("document.querySelectorAll('.stream [data-at]').length > 100")
        assert [requested for requested in page.requests if not requested.startswith(("file:", "data:"))] == []
        await page.set_offline(offline=False)
        await page.open(monitor.url)
    assert page.errors == []


async def test_a_page_keeps_its_content_and_reconnects_when_the_monitor_restarts(served, page: Page):
    _, run_dir = served
    with start_monitor(run_dir) as first:
        port = first.url.rpartition(":")[2]
        await page.open(f"{first.url}/#/run/{RUN}/steps")
        await page.wait_until("document.querySelectorAll('tbody tr').length === 8")
    await page.wait_for_text("reconnecting")
    assert await page.evaluate("document.querySelectorAll('tbody tr').length") == 8, "what was there stays"
    with start_monitor(run_dir, "--port", port):
        await page.wait_until("!document.querySelector('.pill').innerText.includes('reconnecting')")


async def test_a_removed_run_a_wrong_token_and_damaged_files_each_show_a_clear_message(
    served, page: Page, tmp_path: Path
):
    monitor, run_dir = served
    going = tmp_path / "runs" / "going"
    going.parent.mkdir()
    await asyncio.to_thread(shutil.copytree, run_dir.parent / "history", going)
    with (going / "metrics.jsonl").open("ab") as file:
        file.write(b"\x00 not a line \xff\n")
    with start_monitor(going) as watching:
        await page.open(watching.address)
        await page.wait_for_text("are damaged and were left out")
        await asyncio.to_thread(shutil.rmtree, going)
        await page.wait_for_text("was removed while this monitor watched it")
    with start_monitor(run_dir, "--host", "0.0.0.0", env={"LONGSHORE_MONITOR_TOKEN": "right"}) as guarded:  # noqa: S104  with a token
        local = f"http://127.0.0.1:{guarded.url.rpartition(':')[2]}"
        await page.open(f"{local}/?token=wrong")
        await page.wait_for_text("the token is wrong")
        await page.open(f"{local}/?token=right")
        await page.wait_until("document.querySelector('.cards')")
    await page.open(f"{monitor.url}/#/run/{RUN}/trajectories/train-g777777-s00")
    await page.wait_for_text("has no trajectory")
    await page.open(f"{monitor.url}/#/run/nothing/steps")
    await page.wait_for_text("there is no run")


async def test_what_the_browser_showed_is_beside_the_action_and_larger_in_its_panel(served, page: Page):
    monitor, _ = served
    await page.open(f"{monitor.url}/#/run/{RUN}/trajectories/{ONE}")
    await page.wait_until("document.querySelectorAll('.pictures img').length === 2")
    large = "document.querySelector('.page-picture')"
    await page.wait_until(f"{large}.complete && {large}.naturalWidth === 800 && {large}.alt.endsWith('turn 2')")
    await page.click(".pictures button")
    await page.wait_until(f"{large}.complete && {large}.alt.endsWith('turn 1')")
    await page.wait_until("[...document.querySelectorAll('.pictures img')].every(each => each.naturalWidth === 800)")
    await fits(page)
    await save_screenshot(page, "page-pictures")
    only_asked(page, monitor.url)
