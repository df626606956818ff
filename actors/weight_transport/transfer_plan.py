"""The plan of a version's transfer from the learner's host to another host."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.weights import WeightVersion

BLOCK_BYTES = 4 << 20
"""Number of bytes of a file in one block."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    name: str
    bytes: int
    item_bytes: int
    """Number of bytes of one tensor element in the file; 1 for other files."""

    @property
    def blocks(self) -> int:
        return -(-self.bytes // BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """The files of one version, each built block by block from the file of the same name in ``base``."""

    version: WeightVersion
    folder: str
    base: WeightVersion
    """The version that the blocks are deltas to; with ``NO_VERSION`` they hold the whole files."""
    files: tuple[PlannedFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)
