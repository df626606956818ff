"""Where a host keeps versions: a folder each, by the name of its version."""

from __future__ import annotations

import shutil
from pathlib import Path

from protocol.weights import Version


def version_folder(parent: Path, version: int) -> Path:
    return parent / f"v{version}"


def versions_in(parent: Path) -> list[Version]:
    """Those that are there whole, oldest first."""
    return sorted(Version(int(path.name[1:])) for path in parent.glob("v*") if path.name[1:].isdigit())


def forget_before(parent: Path, version: int, keep: int) -> None:
    """Remove what is older than ``version``, but the ``keep`` newest of all."""
    for old in versions_in(parent)[:-keep]:
        if old < version:
            shutil.rmtree(version_folder(parent, old), ignore_errors=True)
