"""A run from its start to what is handed on of it, by the page and one command at a time.  If this fails, somebody who
has just started the first run cannot find out why an episode failed, or cannot steer the run.

``LONGSHORE_SCREENSHOTS=docs/images`` takes the demo's own recipe, and keeps the pictures of docs/monitor.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from launch.pages.packages import package_file
from launch.run_records.stored_config import load_stored_config
from tests.support.commands import run_json
from tests.support.pages.browser import Page, chromium, open_page
from tests.support.pages.screenshots import KEPT_IN, NARROW, WIDE, save_screenshot
from tests.support.runs.cluster_runs import MiniRun, MiniRuns

pytestmark = [
    *(pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow),
    pytest.mark.timeout(3600),
    pytest.mark.skipif(chromium() is None, reason="no Chromium here: make setup as root, or apt-get install chromium"),
    pytest.mark.skipif(
        package_file("uplot.js") is None, reason="the page's packages are not here: make setup with a network"
    ),
]

PLAYER = "document.querySelector('.recording .ap-term')"
REWARDS = "[...document.querySelectorAll('tbody .reward b')].map(each => Number(each.textContent))"
SOON_S = 900.0


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with open_page(tmp_path / "profile") as opened:
        await opened.set_viewport(*WIDE)
        await opened.set_color_scheme("light")
        yield opened


def start(mini_runs: MiniRuns) -> MiniRun:
    options = ("--set", "monitor.enabled=true", "--steps", "500")
    return mini_runs.demo("watched", *options) if KEPT_IN else mini_runs.start("watched", *options)


async def command(module: str, *words: object) -> dict[str, Any]:
    """Run a command and return its JSON output."""
    done = await asyncio.to_thread(run_json, module, *words)
    assert done.exit_code == 0, done.output
    return done.output


async def played_again(trajectory: str) -> None:
    """The hidden test tosses a coin, so the verdict may be another: the exit code says whether it is."""
    done = await asyncio.to_thread(run_json, "launch.replay", trajectory)
    assert "replays" in done.output, done
    (again,) = done.output["replays"]
    assert (again["failure"], again["different"]) == (None, 0)
    assert done.exit_code == (0 if again["same_verdict"] else 1)


async def test_a_run_can_be_watched_steered_exported_and_replayed(
    mini_runs: MiniRuns, page: Page, tmp_path: Path
) -> None:
    run = await asyncio.to_thread(start, mini_runs)
    started = await asyncio.to_thread(run.wait_event, "its page", "run.started", within_s=SOON_S)
    await page.open(started["url"])
    await page.wait_for_text("watched")
    await asyncio.to_thread(run.wait_step, 4 if KEPT_IN else 2, SOON_S)
    await page.wait_until("document.querySelectorAll('.overview .curve canvas').length === 6")
    await page.wait_until("document.querySelectorAll('.activity-track[data-kind=worker] path').length > 1")
    await save_screenshot(page, "overview")

    await worst_of_the_last_step(page)
    name = await page.evaluate("location.hash.split('/').pop()")
    await its_tokens_and_its_group(page)
    await in_the_dark_and_narrow(page, f"{started['url'].rstrip('/')}/#/run/watched")
    await page.open(f"{started['url'].rstrip('/')}/#/run/watched/trajectories/{name}")
    await page.wait_until("document.querySelector('a[download]')")
    exported = await page.evaluate("fetch(document.querySelector('a[download]').href).then(each => each.text())")

    await command("launch.control.ctl", run.path, "pause")
    await page.open(f"{started['url'].rstrip('/')}/#/run/watched")
    await page.wait_for_text("paused")
    before = load_stored_config(run.path).in_flight
    step = run.events("learner.step")[-1]["step"]
    await command("launch.control.ctl", run.path, "retune", f"in_flight={before // 2}")
    await command("launch.control.ctl", run.path, "resume")
    await asyncio.to_thread(run.wait_step, step + 1, SOON_S)
    await page.wait_for_text(f"step {step + 1}")
    assert load_stored_config(run.path).rollout.in_flight == before // 2

    (tmp_path / "kept.html").write_text(exported)
    await page.open(f"file://{tmp_path / 'kept.html'}")
    await page.wait_until(PLAYER)
    await played_again(f"{run.path}/{name}")
    await command("launch.control.ctl", run.path, "stop")
    assert (await asyncio.to_thread(run.succeed, SOON_S))["ended"] == "stopped_by_request"
    assert page.errors == []


async def worst_of_the_last_step(page: Page) -> None:
    """From the overview, by clicks: its turns, what of its tests failed, and its terminal."""
    await page.click("a.button", "All trajectories of the step")
    await page.wait_until("location.hash.includes('step=last') && location.hash.includes('sort=worst')")
    await page.wait_until(
        f"{REWARDS}.length > 3 && {REWARDS}.every((now, row, all) => row === 0 || all[row - 1] <= now)"
    )
    await save_screenshot(page, "trajectories")
    worst = await page.wait_for_value("document.querySelector('tbody a').textContent")
    await page.click("tbody a", worst)
    await page.wait_until(f"location.hash.endsWith({json.dumps(worst)})")
    await page.wait_until("document.querySelectorAll('.turn.model').length >= 1")
    await page.wait_for_text("passed")
    await page.wait_until(PLAYER)
    await page.click(".turn.model .turn-head", "Turn 1")
    await page.wait_until("document.querySelector('.turn.current')?.dataset.turn === '0'")
    await page.evaluate("scrollTo(0, 0)")
    await save_screenshot(page, "trajectory")


async def its_tokens_and_its_group(page: Page) -> None:
    await page.click(".turn.model .turn-foot button", "Tokens")
    await page.wait_until("document.querySelectorAll('.stream [data-at]').length > 8")
    await save_screenshot(page, "tokens")
    await page.click("a.button", "Group")
    await page.wait_until("document.querySelectorAll('th.member').length > 3")
    await page.wait_for_text("advantage")
    await save_screenshot(page, "group")


async def in_the_dark_and_narrow(page: Page, run: str) -> None:
    expected = (
        "[...document.querySelectorAll('.terminals .screen')].filter(each => each.innerText.trim().length > 10).length"
    )
    curves = "document.querySelectorAll('.curve canvas').length"
    for light, size, name, where, ready in (
        ("dark", WIDE, "overview-dark", "", f"{curves} === 6 && document.querySelector('.activity-track path')"),
        ("dark", WIDE, "curves-dark", "/curves", f"{curves} > 15"),
        ("dark", WIDE, "terminals-dark", "/terminals", f"{expected} > {5 if KEPT_IN else 1}"),
        ("light", NARROW, "overview-narrow", "", f"{curves} === 6"),
        ("light", NARROW, "trajectories-narrow", "/trajectories", "document.querySelectorAll('tbody tr').length > 4"),
    ):
        await page.set_color_scheme(light)
        await page.set_viewport(*size)
        await page.open(run + where)
        await page.wait_until(ready)
        await save_screenshot(page, name)
    await page.set_viewport(*WIDE)
