"""The page's npm packages: uPlot and asciinema-player, pinned by package-lock.json.

``tools/page_packages.sh`` (of ``make setup``) installs them into ``node_modules`` here, which git ignores and the wheel
includes with the licences.  Without them the page shows a notice in place of curves and replays.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_FOLDER = Path(__file__).parent / "node_modules"
_FILES: Mapping[str, str] = MappingProxyType(
    {
        "uplot.js": "uplot/dist/uPlot.iife.min.js",
        "uplot.css": "uplot/dist/uPlot.min.css",
        "player.js": "asciinema-player/dist/bundle/asciinema-player.min.js",
        "player.css": "asciinema-player/dist/bundle/asciinema-player.css",
    }
)


def package_file(name: str) -> Path | None:
    """Return the file behind the page's ``/packages/NAME``; None for any other name, and where it is not installed."""
    path = _FOLDER / _FILES[name] if name in _FILES else None
    return path if path is not None and path.is_file() else None


def package_text(name: str) -> str:
    """Return the package's text; empty if it is not installed."""
    path = package_file(name)
    return "" if path is None else path.read_text(encoding="utf-8")
