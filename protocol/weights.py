"""Steps and weight versions, and the staleness of tokens.

``step`` counts optimizer steps in the lineage of the current checkpoint and rolls back on resume.  ``version`` names
one set of weights and is never reused, even across resumes: its high bits are the number of the run's start, its low
bits a counter.  Only versions leave the learner: prefix-cache keys, files, routing and token labels carry them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NewType

WeightVersion = NewType("WeightVersion", int)

_COUNT_BITS = 20
_VERSION_BITS = 31
"""Bits of a version, so that it fits an int32."""
NO_VERSION = WeightVersion(-1)


def make_version(start_number: int, count: int) -> WeightVersion:
    """Return the version of the ``count``-th set of weights of the run's ``start_number``-th start.

    Raises ValueError beyond 2²⁰ sets of weights per start, or 2,047 starts per run.
    """
    version = start_number << _COUNT_BITS | count
    if start_number < 0 or not 0 <= count < 1 << _COUNT_BITS or version >= 1 << _VERSION_BITS:
        raise ValueError(f"start {start_number} or count {count} out of range")
    return WeightVersion(version)


def version_start_number(version: int) -> int:
    """Return the number of the run's start that published ``version``."""
    return version >> _COUNT_BITS


def format_version(version: int) -> str:
    """Return a version as ``start.count`` for people."""
    return "-" if version < 0 else f"{version_start_number(version)}.{version & (1 << _COUNT_BITS) - 1}"


@dataclass(frozen=True, slots=True)
class LineageEntry:
    version: WeightVersion
    step: int
    """Number of optimizer steps in this version's lineage."""
    parent: WeightVersion
    """Version that it was trained or copied from; ``NO_VERSION`` for the first."""


@dataclass(slots=True)
class Lineage:
    """The tree of versions, along which staleness is measured."""

    entries: dict[int, LineageEntry] = field(default_factory=dict[int, LineageEntry])

    def add(self, version: WeightVersion, step: int, parent: WeightVersion) -> None:
        """Add a version.  Raises ValueError if it is known already, or if its parent is unknown or newer."""
        if version in self.entries:
            raise ValueError(f"version {format_version(version)} exists")
        if parent >= version:
            raise ValueError(f"parent {format_version(parent)} of version {format_version(version)} is newer")
        if parent != NO_VERSION and parent not in self.entries:
            raise ValueError(f"parent {format_version(parent)} of version {format_version(version)} is unknown")
        self.entries[version] = LineageEntry(version, step, parent)

    def walk_ancestors(self, version: int) -> Iterator[WeightVersion]:
        """Yield ``version`` and its ancestors, newest first."""
        while (entry := self.entries.get(version)) is not None:
            yield entry.version
            version = entry.parent

    def staleness(self, sampled: int, using: int) -> int:
        """Return the optimizer steps between the weights ``sampled`` and ``using`` through their nearest common
        ancestor.
        Raises KeyError for an unknown version."""
        left, right = sampled, using
        while left != right:  # the higher of two is never an ancestor of the other
            if left > right:
                left = self.entries[left].parent
            else:
                right = self.entries[right].parent
        if left == NO_VERSION:
            raise KeyError(f"versions {format_version(sampled)} and {format_version(using)} have no common ancestor")
        return self.entries[sampled].step + self.entries[using].step - 2 * self.entries[left].step


@dataclass(frozen=True, slots=True)
class WeightManifest:
    """One published set of weights: a complete, immutable Hugging Face folder."""

    version: WeightVersion
    step: int
    parent: WeightVersion
    path: str
    """Path of the folder with config.json and safetensors files."""
    sha256: str
    """SHA-256 of the safetensors file."""
    tensors: int
    bytes: int
