"""Compares the checksums that servers report for a version they have loaded.  Pure.

If they differ, every engine that holds the version is to restart its server on the version's files.  This happens once:
if the checksums differ again without having agreed in between, the machines represent the same weights in different
bits, or one is broken, and a restart helps in neither case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.weights import NO_VERSION, WeightVersion


class ChecksumMismatch(NamedTuple):
    checksums: dict[str, str]
    """Engine → checksum of all that have loaded the version."""
    is_repeated: bool
    """Whether a restart has not helped before."""


@dataclass(slots=True)
class ChecksumAudit:
    _version: WeightVersion = NO_VERSION
    """The newest version that an engine loaded."""
    _checksums: dict[str, str] = field(default_factory=dict[str, str])
    _restarted: bool = False
    """Whether engines were restarted for a mismatch and have not all agreed since."""

    def record(self, engine: str, version: WeightVersion, checksum: str, engines: int) -> ChecksumMismatch | None:
        """Record what one of ``engines`` engines has loaded; return a mismatch if there is one."""
        if version < self._version:
            return None
        if version > self._version:
            self._version, self._checksums = version, {}
        found = self._checksums
        found[engine] = checksum
        if len(set(found.values())) < 2:
            self._restarted &= len(found) < engines
            return None
        is_repeated, self._restarted, self._checksums = self._restarted, True, {}
        return ChecksumMismatch(found, is_repeated)
