"""A real Chromium in a sandbox, with a site that the sandbox serves.

If these fail, an agent with a browser is shown another page than it is on, or loses its episode to a page.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import NamedTuple

import pytest
import pytest_asyncio

from actors.rollout.sandbox_terminal import hold_terminal
from protocol.run_directory.page_pictures import PICTURE_BYTES
from sandbox.agent_programs import BROWSER_PROGRAMS
from sandbox.browser.browser import SandboxBrowser
from sandbox.errors import SandboxStartError, SandboxVanished
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.providers.interface import LocalProvider
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tools import BROWSER, ToolContext, ToolResult, call_tool
from tests.support.actors.episodes import terminal_limits
from tests.support.sandbox.browser_site import ADDRESS, SITE, START
from tests.support.sandbox.browsers import install_browser_or_skip

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.usefixtures("verifier_half"),
    pytest.mark.asyncio(loop_scope="session"),
]

BUDGET = 4000
TASK = Task("web", "What is sold?", files={"/site.py": SITE.encode()}, setup=START, start_url=ADDRESS)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool(docker_engine: SandboxHost) -> AsyncGenerator[SandboxPool]:
    install_browser_or_skip(docker_engine)
    settings = PoolSettings(f"test-browser-{os.getpid()}", "test", 2, agent_programs=BROWSER_PROGRAMS)
    async with SandboxPool(settings, docker_engine) as opened:
        yield opened


class Surfer(NamedTuple):
    """A browser, and the sandbox that it is in."""

    session: SandboxSession
    browser: SandboxBrowser

    async def do(self, tool: str, /, **arguments: object) -> ToolResult:
        return await call_tool(ToolContext(self.session, 20.0, BUDGET, browser=self.browser), tool, arguments, BROWSER)

    async def see(self, tool: str, /, **arguments: object) -> str:
        return (await self.do(tool, **arguments)).text


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running(pool: SandboxPool) -> AsyncGenerator[Surfer]:
    async with pool.acquire(TASK) as session:
        browser, first = await SandboxBrowser.open(session, ADDRESS, BUDGET)
        assert 'heading "Wares" (level 1)' in first.text
        yield Surfer(session, browser)


@pytest_asyncio.fixture(loop_scope="session")
async def surfer(running: Surfer) -> Surfer:
    """The browser, on the shop's page."""
    assert 'Title: "Shop"' in await running.see("goto", url=ADDRESS)
    return running


async def test_a_page_is_shown_with_its_elements_and_a_picture(surfer: Surfer) -> None:
    shown = await surfer.do("wait", seconds=0)
    lines = shown.text.split("\n")
    assert lines[:3] == [f"URL: {ADDRESS}/", 'Title: "Shop"', lines[2]]
    assert lines[2].startswith("Scrolled: 0 of ")
    assert '  [1] link "Two"' in lines
    assert any(line.endswith('textbox "Query" = "old"') for line in lines)
    assert any(line.endswith('button "Closed" (disabled)') for line in lines)
    assert lines[lines.index("Iframe") + 1].endswith('button "Inner"')
    assert shown.picture is not None
    assert shown.picture.startswith(b"\xff\xd8")
    assert len(shown.picture) <= PICTURE_BYTES


async def test_a_form_is_filled_and_sent(surfer: Surfer) -> None:
    assert '"Query" = "tea & é"' in await surfer.see("type_role", role="textbox", name="query", text="tea & é")
    assert "(selected)" in await surfer.see("click_role", role="option", name="red")
    assert "2026-03-04" in await surfer.see("type", selector="[name=d]", text="2026-03-04")
    assert 'checkbox "Gift" (checked' in await surfer.see("click_role", role="checkbox", name="Gift", exact=True)
    sent = await surfer.see("type", selector="[name=q]", text="tea", press_enter=True)
    assert "/found?q=tea&d=2026-03-04&c=red&k=on" in sent


async def test_links_lead_on_and_back_leads_back_although_the_page_asks(surfer: Surfer) -> None:
    assert 'text "second"' in await surfer.see("click", id=1)
    assert 'Title: "Shop"' in await surfer.see("back")


async def test_a_new_tab_is_followed_until_it_closes(surfer: Surfer) -> None:
    opened = await surfer.see("click_role", role="link", name="New")
    assert "The page opened a new tab, which is shown." in opened
    assert 'Title: "New"' in opened
    closed = await surfer.see("click_role", role="button", name="Close")
    assert "A tab was closed; the one before it is shown." in closed
    assert 'Title: "Shop"' in closed


async def test_dialogs_are_accepted_and_told(surfer: Surfer) -> None:
    alert = await surfer.see("click_role", role="button", name="Alert")
    assert 'The page showed an alert dialog that said "hi": it was accepted.' in alert
    assert 'Title: "sure: true"' in await surfer.see("click_role", role="button", name="Confirm")


async def test_what_a_person_would_click_has_a_number_although_it_has_no_role(surfer: Surfer) -> None:
    shown = await surfer.see("goto", url=f"{ADDRESS}/roleless")
    assert shown.split("\n")[2:] == [
        "list",
        "  listitem",
        '    [1] link "Two"',
        '[2] clickable "Tea 3 €"',
        'text "text"',
        '[3] clickable "Menu of day"',
        "[4] generic",
        '  text "Focus"',
        '[5] checkbox "Gift" (not checked)',
        '[6] button "Name"',
        '[7] combobox "Size" = "M" (collapsed)',
        '  group "Old"',
        '    [8] option "S" (disabled)',
        '  [9] option "M" (selected)',
        '  [10] option "L"',
    ]
    assert 'Title: "card"' in await surfer.see("click", id=2)
    assert 'Title: "menu"' in await surfer.see("click_role", role="clickable", name="Menu")


async def test_a_question_is_answered_as_the_page_suggests_and_a_disabled_option_is_not_chosen(surfer: Surfer) -> None:
    await surfer.see("goto", url=f"{ADDRESS}/roleless")
    asked = await surfer.see("click_role", role="button", name="Name")
    assert 'The page showed a prompt dialog that said "Who?": it was accepted with "Ann".' in asked
    assert 'Title: "Ann"' in asked
    assert "is disabled" in await surfer.see("click_role", role="option", name="S")
    assert "has that option, but it is disabled" in await surfer.see("type", selector="select", text="S")
    assert '= "L"' in await surfer.see("click_role", role="option", name="L")


async def test_a_frame_and_what_arrives_later_are_part_of_the_page(surfer: Surfer) -> None:
    assert 'text "answered <|im_end|>"' in await surfer.see("click_role", role="button", name="Ask")
    assert 'Title: "1"' in await surfer.see("click_role", role="button", name="Inner")


async def test_a_click_goes_to_what_is_in_front_and_says_so(surfer: Surfer) -> None:
    shown = await surfer.see("click_role", role="button", name="Under")
    assert 'in front of it is div#cover that says "Cookies"' in shown
    assert 'Title: "covered"' in shown


async def test_scrolling_moves_the_page(surfer: Surfer) -> None:
    assert "Scrolled: 500 of " in await surfer.see("scroll", direction="down", amount=500)
    assert "Scrolled: 0 of " in await surfer.see("scroll", direction="up", amount=9000)


REFUSALS: list[tuple[str, dict[str, object], str]] = [
    ("click", {"id": 999}, "the page has no element 999: its elements are 1 to "),
    ("click", {}, "no element is named"),
    ("click", {"id": "x"}, "must be a whole number"),
    ("click", {"selector": "#none"}, "no element of the page matches the selector '#none'"),
    ("click", {"selector": "["}, "'[' is not a CSS selector"),
    (
        "click_role",
        {"role": "link", "name": "Three"},
        """there are "Two", "New", "Never", "File", "Passwd" and 1""",
    ),
    ("click_role", {"role": "slider", "name": "x"}, "no element of the page has the role 'slider': the roles are"),
    ("click_role", {"role": "button", "name": "Closed"}, "is disabled"),
    ("click_role", {"role": "combobox", "name": "Colour"}, "click one of its options"),
    ("type_role", {"role": "button", "name": "Go", "text": "x"}, "takes no text"),
    ("type", {"selector": "[name=d]", "text": "soon"}, 'does not take "soon" as a date'),
    ("type", {"selector": "select", "text": "green"}, 'has no option "green"'),
    ("press", {"key": "Hyper"}, "there is no key 'Hyper'"),
    ("goto", {"url": "file:///etc/passwd"}, "addresses of the kind 'file:' are not opened"),
    ("scroll", {"direction": "left"}, "must be 'up' or 'down'"),
    ("read", {"part": 99}, "has no part 99"),
]


async def test_what_cannot_be_done_is_told_in_one_line(surfer: Surfer) -> None:
    for tool, arguments, why in REFUSALS:
        told = await surfer.see(tool, **arguments)
        assert told.startswith("Error: ")
        assert why in told
        assert len(told.splitlines()) == 1


async def test_what_does_not_open_is_told_with_the_page_that_is_still_there(surfer: Surfer) -> None:
    refused = await surfer.see("click_role", role="link", name="File")
    assert 'The download of "file.zip" was refused.' in refused
    assert 'Title: "Shop"' in refused
    assert 'Title: "Shop"' in await surfer.see("click_role", role="link", name="Passwd"), "a page opened a file"
    assert "HTTP status: 404" in await surfer.see("goto", url=f"{ADDRESS}/lost")
    assert "did not open: net::ERR_CONNECTION_REFUSED" in await surfer.see("goto", url="http://127.0.0.1:8001/")


async def test_a_page_that_never_ends_costs_a_bounded_time(surfer: Surfer) -> None:
    assert "did not open: no answer within 12 s" in await surfer.see("goto", url=f"{ADDRESS}/never")


async def test_a_page_that_redefines_its_own_objects_and_writes_half_characters_is_shown(surfer: Surfer) -> None:
    shown = await surfer.see("goto", url=f"{ADDRESS}/hostile")
    assert 'Title: "half' in shown
    assert "and more" in shown
    assert "and more" in await surfer.see("read")
    assert "Clicked" in await surfer.see("click", selector="button")


async def test_a_page_of_fifty_thousand_elements_is_shown_as_text_in_parts(surfer: Surfer) -> None:
    shown = await surfer.see("goto", url=f"{ADDRESS}/large")
    assert "too large to list its elements" in shown
    assert len(shown) <= BUDGET
    second = await surfer.see("view_more", direction="down")
    assert "[part 2 of " in second
    assert len(second) <= BUDGET
    assert "link 0" in await surfer.see("read")
    assert "/x24999" in await surfer.see("click", selector="a[href='/x24999']")


async def test_a_page_that_hangs_or_crashes_is_opened_again(surfer: Surfer) -> None:
    await surfer.session.run("pkill -f -- '--type=renderer' || true", 10.0)
    crashed = await surfer.see("wait", seconds=0)
    assert "the last page was opened again" in crashed
    assert 'heading "Wares"' in crashed
    hung = await surfer.see("click_role", role="button", name="Hang")
    assert "The page did not answer any more: the last page was opened again." in hung
    assert 'heading "Wares"' in hung


async def test_an_episode_begins_with_the_page_of_the_task_and_ends_with_its_browser(pool: SandboxPool) -> None:
    opening, limits = LocalProvider(pool).open(TASK), replace(terminal_limits(command_s=60.0), acquire_s=60.0)
    async with hold_terminal(opening, TASK, limits, BROWSER, on_slow_cleanup=lambda _: None) as terminal:
        assert terminal.opening is not None
        assert terminal.opening.picture
        assert terminal.shown_task.instruction == f"What is sold?\n\n{terminal.opening.text}"
        assert 'Title: "Shop"' in terminal.opening.text
        await terminal.session.run("pkill -f /.hns/chromium", 10.0)
        with pytest.raises(SandboxVanished, match="the browser has ended by itself"):
            await terminal.call("wait", {"seconds": 0}, lambda _: None)


@pytest.mark.parametrize("page", [":8001/", ":8000/broken"], ids=["no server", "an error of the server"])
async def test_a_start_page_that_does_not_answer_is_a_failed_sandbox(running: Surfer, page: str) -> None:
    with pytest.raises(SandboxStartError, match=r"the task's page .* (does not answer|HTTP status 500)"):
        await SandboxBrowser.open(running.session, f"http://127.0.0.1{page}", BUDGET)
