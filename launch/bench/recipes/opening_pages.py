"""The pages with which practice tasks of the web begin, as a browser in their sandboxes shows them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from actors.rollout.sandbox_terminal import with_opening_page
from sandbox.agent_programs import BROWSER_PROGRAMS
from sandbox.browser.browser import SandboxBrowser
from sandbox.browser.installation import require_browser
from sandbox.host_record import current_host
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.tasks.task import Task


async def read_opening_pages(tasks: Sequence[Task], observation_chars: int) -> Sequence[Task]:
    """Return the tasks as an agent with a browser is told them; as they are if they begin with no page.

    Raises UserError if there is no browser, and SandboxStartError for a page that does not answer."""
    if not any(task.start_url for task in tasks):
        return tasks
    require_browser(current_host().home)
    name = f"pages-{uuid.uuid4().hex[:8]}"
    async with SandboxPool(PoolSettings(name, name, 1, agent_programs=BROWSER_PROGRAMS)) as pool:
        return [await _read_opening_page(pool, task, observation_chars) for task in tasks]


async def _read_opening_page(pool: SandboxPool, task: Task, observation_chars: int) -> Task:
    async with pool.acquire(task) as session:
        _, page = await SandboxBrowser.open(session, task.start_url, observation_chars)
    return with_opening_page(task, page.text)
