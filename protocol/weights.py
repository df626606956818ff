"""Steps and versions: which weights made a token, and how old that makes it.

``step`` counts optimizer steps in the lineage of the current checkpoint and rolls back on resume.  ``version`` names
one set of weights and is never used twice, not across resumes either: the attempt stands in its high bits, a counter in
the low ones.  Only versions leave the learner: KV keys, files, routing and token labels carry them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NewType

WeightVersion = NewType("WeightVersion", int)

_COUNT_BITS = 20
_VERSION_BITS = 31
"""So that a token's version is an int32."""
NO_VERSION = WeightVersion(-1)


def make_version(attempt: int, count: int) -> WeightVersion:
    """The ``count``-th set of weights that the ``attempt``-th start of a run made.

    Raises ValueError beyond a million sets of weights (2²⁰) of one start, or 2,047 starts of one run.
    """
    version = attempt << _COUNT_BITS | count
    if attempt < 0 or not 0 <= count < 1 << _COUNT_BITS or version >= 1 << _VERSION_BITS:
        raise ValueError(f"attempt {attempt} or count {count} out of range")
    return WeightVersion(version)


def version_attempt(version: int) -> int:
    """The start of the run that published ``version``."""
    return version >> _COUNT_BITS


def format_version(version: int) -> str:
    """``attempt.count``, for people."""
    return "-" if version < 0 else f"{version_attempt(version)}.{version & (1 << _COUNT_BITS) - 1}"


@dataclass(frozen=True, slots=True)
class LineageEntry:
    version: WeightVersion
    step: int
    """Optimizer steps taken in this version's lineage."""
    parent: WeightVersion
    """The version it was trained or copied from; ``NO_VERSION`` for the first."""


@dataclass(slots=True)
class Lineage:
    """The tree of versions.  Ages are measured along it."""

    entries: dict[int, LineageEntry] = field(default_factory=dict[int, LineageEntry])

    def add(self, version: WeightVersion, step: int, parent: WeightVersion) -> None:
        """Record a version.  Raises ValueError if the version is known, or its parent is not, or comes after it."""
        if version in self.entries:
            raise ValueError(f"version {format_version(version)} exists")
        if parent >= version:
            raise ValueError(f"parent {format_version(parent)} of version {format_version(version)} is made after it")
        if parent != NO_VERSION and parent not in self.entries:
            raise ValueError(f"parent {format_version(parent)} of version {format_version(version)} is unknown")
        self.entries[version] = LineageEntry(version, step, parent)

    def walk_ancestors(self, version: int) -> Iterator[WeightVersion]:
        """``version`` and those that it comes from, newest first."""
        while (entry := self.entries.get(version)) is not None:
            yield entry.version
            version = entry.parent

    def age(self, sampled: int, using: int) -> int:
        """Optimizer steps between the weights ``sampled`` and the weights ``using``, through their nearest common
        ancestor.  Raises KeyError for an unknown version."""
        left, right = sampled, using
        while left != right:  # the higher of two is no ancestor of the other
            if left > right:
                left = self.entries[left].parent
            else:
                right = self.entries[right].parent
        if left == NO_VERSION:
            raise KeyError(f"versions {format_version(sampled)} and {format_version(using)} have no common ancestor")
        return self.entries[sampled].step + self.entries[using].step - 2 * self.entries[left].step


@dataclass(frozen=True, slots=True)
class WeightManifest:
    """One published set of weights: a Hugging Face folder that is complete and will not change."""

    version: WeightVersion
    step: int
    parent: WeightVersion
    path: str
    """Folder with config.json and safetensors files."""
    sha256: str
    """Of the safetensors file."""
    tensors: int
    bytes: int
