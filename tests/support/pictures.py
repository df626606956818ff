"""Pictures of the monitor's page, for docs/ where they are asked for."""

from __future__ import annotations

import io
import os

from PIL import Image

from tests.support.browser import Page

WIDE, NARROW = (1280, 860), (390, 844)
KEPT_IN = os.environ.get("LONGSHORE_SCREENSHOTS", "")
"""Folder; empty where nobody asks for them."""


async def shoot(page: Page, name: str) -> None:
    """Few colours, so that it is small.  Fails where nothing is drawn."""
    picture = Image.open(io.BytesIO(await page.picture())).convert("RGB")
    assert len(picture.getcolors(1 << 24) or ()) > 16, f"{name} is blank"
    if KEPT_IN:
        picture.quantize(224).save(f"{KEPT_IN}/monitor-{name}.png", optimize=True)
