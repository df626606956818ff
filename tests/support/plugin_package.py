"""The package of docs/plugins.md, laid out as pip lays one out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.support.documented_commands import ROOT, read_files


def write_plugin_package(folder: Path) -> None:
    """Write the page's files and their metadata into a folder of installed packages."""
    for path, text in read_files(ROOT / "docs" / "plugins.md").items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    install_metadata(folder, project["name"], project["entry-points"])


def install_metadata(folder: Path, name: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    """Write the metadata that pip leaves of an installed package."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = (
        line for group, points in entry_points.items() for line in (f"[{group}]", *map(" = ".join, points.items()))
    )
    (info / "entry_points.txt").write_text("\n".join(lines))
