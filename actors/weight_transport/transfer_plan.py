"""The files of a version, as the learner's host announces them to others."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.weights import WeightVersion

BLOCK_BYTES = 4 << 20
"""Of a file, in one block."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    name: str
    bytes: int
    item_bytes: int
    """Bytes of one number in it."""

    @property
    def blocks(self) -> int:
        return -(-self.bytes // BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """The files of one version, each to be made block by block from the file of the same name of ``base``."""

    version: WeightVersion
    folder: str
    base: WeightVersion
    """``NO_VERSION``: from nothing, so that the blocks hold everything."""
    files: tuple[PlannedFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)
