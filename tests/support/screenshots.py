"""Pictures of the monitor's page, for docs/ where they are asked for."""

from __future__ import annotations

import io
import os

from PIL import Image

from tests.support.browser import Page

WIDE, NARROW = (1280, 860), (390, 844)
KEPT_IN = os.environ.get("LONGSHORE_SCREENSHOTS", "")
"""Folder; empty where nobody asks for them."""


async def drawn(page: Page, what: str) -> Image.Image:
    """Fails where nothing is drawn."""
    picture = Image.open(io.BytesIO(await page.picture())).convert("RGB")
    assert len(picture.getcolors(1 << 24) or ()) > 16, f"{what} is blank"
    return picture


async def shoot(page: Page, name: str) -> None:
    """Keep it, as it is drawn.  Fails where nothing is."""
    picture = await drawn(page, name)
    if KEPT_IN:
        picture.save(f"{KEPT_IN}/monitor-{name}.png", optimize=True)
