"""The scripts, styles and pictures in ``static/``, which pages embed and the monitor's server serves."""

from __future__ import annotations

from pathlib import Path

STATIC_FOLDER = Path(__file__).parent / "static"


def static_text(name: str) -> str:
    """Return the text of one file of ``static/``."""
    return (STATIC_FOLDER / name).read_text(encoding="utf-8")
