"""Helpers that check standalone pages."""

from __future__ import annotations

import re

from launch.pages.html_document import inline_script
from launch.pages.packages import package_text


def without_packages(page: str) -> str:
    """Cut out uPlot and asciinema-player, the element of their scripts too: addresses in their text are never asked."""
    for name in ("uplot", "player"):
        page = page.replace(package_text(f"{name}.css"), "").replace(inline_script(package_text(f"{name}.js")), "")
    return re.sub(r"<script>\s*</script>\n", "", page)


def outside_urls(page: str) -> list[str]:
    """Return every address in the page but the namespace of SVG."""
    return [url for url in re.findall(r"\b\w+://[^\s\"'<>)]*", page) if url != "http://www.w3.org/2000/svg"]
