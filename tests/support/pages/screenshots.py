"""Pictures of the monitor's page, for docs/ where they are asked for."""

from __future__ import annotations

import io
import os

from PIL import Image

from tests.support.pages.browser import Page

WIDE, NARROW = (1280, 860), (390, 844)
KEPT_IN = os.environ.get("LONGSHORE_SCREENSHOTS", "")
"""Folder for screenshots; empty if none are to be kept."""


async def assert_drawn(page: Page, what: str) -> Image.Image:
    """Fail if the page is blank; return its picture."""
    picture = Image.open(io.BytesIO(await page.screenshot())).convert("RGB")
    assert len(picture.getcolors(1 << 24) or ()) > 16, f"{what} is blank"
    return picture


async def save_screenshot(page: Page, name: str) -> None:
    """Save the page as drawn.  Fails if it is blank."""
    picture = await assert_drawn(page, name)
    if KEPT_IN:
        picture.save(f"{KEPT_IN}/monitor-{name}.png", optimize=True)
