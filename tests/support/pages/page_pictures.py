"""Pictures as a browser in a sandbox makes them."""

from __future__ import annotations

import io

from PIL import Image, ImageDraw


def make_picture(text: str, width: int = 800, height: int = 600) -> bytes:
    """Return a JPEG of a page with this heading."""
    image = Image.new("RGB", (width, height), "#f6f7f9")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width, 52), fill="#1f3a4d")
    draw.text((24, 18), "Harbour Goods    Kettles  Lamps  Backpacks    Cart (0)", fill="#fff")
    draw.text((24, 90), text, fill="#1d2733")
    for place in range(6):
        left, top = 24 + place % 3 * 250, 140 + place // 3 * 170
        draw.rectangle((left, top, left + 220, top + 140), outline="#aab6c2", fill="#fff")
    data = io.BytesIO()
    image.save(data, "JPEG", quality=60)
    return data.getvalue()
