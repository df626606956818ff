"""What the page has from others: uPlot and asciinema-player, from the npm registry as package-lock.json pins them.

``tools/page_packages.sh`` (of ``make setup``) installs them into ``node_modules`` here, which git ignores and the wheel
carries with the licences.  Where they are not there the page says so in the places of curves and replays, and all else
works.
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
    """Where the page's ``/packages/NAME`` is; None for any other name, and where it is not installed."""
    path = _FOLDER / _FILES[name] if name in _FILES else None
    return path if path is not None and path.is_file() else None


def package_text(name: str) -> str:
    """Its text; empty where it is not installed."""
    path = package_file(name)
    return "" if path is None else path.read_text(encoding="utf-8")
