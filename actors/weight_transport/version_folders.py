"""A host's folders of weight versions, one for each version."""

from __future__ import annotations

import shutil
from pathlib import Path

from protocol.weights import WeightVersion


def version_folder(parent: Path, version: int) -> Path:
    return parent / f"v{version}"


def list_versions(parent: Path) -> list[WeightVersion]:
    """Return the complete versions in ``parent``, oldest first."""
    return sorted(WeightVersion(int(path.name[1:])) for path in parent.glob("v*") if path.name[1:].isdigit())


def delete_versions_before(parent: Path, version: int, keep: int) -> None:
    """Delete the versions older than ``version``, except the ``keep`` newest of all."""
    for old in list_versions(parent)[:-keep]:
        if old < version:
            shutil.rmtree(version_folder(parent, old), ignore_errors=True)
