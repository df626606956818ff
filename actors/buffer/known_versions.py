"""The weight versions of a run, as its lineage file lists them."""

from __future__ import annotations

from pathlib import Path

from protocol.run_directory.lineage_log import LineageLog


class KnownVersions:
    """A container of the run's versions; reads the file again if it has grown and a version is missing."""

    def __init__(self, run_dir: Path) -> None:
        self._log, self._size = LineageLog(run_dir), 0
        self._versions: frozenset[int] = frozenset()

    def __contains__(self, version: object) -> bool:
        if version not in self._versions and (size := self._log.size()) != self._size:
            self._size, self._versions = size, frozenset(self._log.read().entries)
        return version in self._versions
