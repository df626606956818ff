"""Steps and versions: which weights made a token, and how old that makes it.

``step`` counts optimizer steps in the lineage of the current checkpoint and rolls back on resume.  ``version`` names
one set of weights and is never used twice, not across resumes either: the attempt stands in its high bits, a counter in
the low ones.  Only versions leave the learner: KV keys, files, routing and token labels carry them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NewType

Version = NewType("Version", int)

_COUNT_BITS = 20
_VERSION_BITS = 31
"""So that a token's version is an int32."""
NO_VERSION = Version(-1)


def make_version(attempt: int, count: int) -> Version:
    """The ``count``-th set of weights that the ``attempt``-th start of a run made.

    Raises ValueError beyond a million sets of weights (2²⁰) of one start, or 2,047 starts of one run.
    """
    version = attempt << _COUNT_BITS | count
    if attempt < 0 or not 0 <= count < 1 << _COUNT_BITS or version >= 1 << _VERSION_BITS:
        raise ValueError(f"attempt {attempt} or count {count} out of range")
    return Version(version)


def attempt_of(version: int) -> int:
    """The start of the run that published ``version``."""
    return version >> _COUNT_BITS


def version_label(version: int) -> str:
    """``attempt.count``, for people."""
    return "-" if version < 0 else f"{attempt_of(version)}.{version & (1 << _COUNT_BITS) - 1}"


@dataclass(frozen=True, slots=True)
class LineageEntry:
    version: Version
    step: int
    """Optimizer steps taken in this version's lineage."""
    parent: Version
    """The version it was trained or copied from; ``NO_VERSION`` for the first."""


@dataclass(slots=True)
class Lineage:
    """The tree of versions.  Ages are measured along it."""

    entries: dict[int, LineageEntry] = field(default_factory=dict[int, LineageEntry])

    def add(self, version: Version, step: int, parent: Version) -> None:
        """Record a version.  Raises ValueError if the version is known, or its parent is not, or comes after it."""
        if version in self.entries:
            raise ValueError(f"version {version_label(version)} exists")
        if parent >= version:
            raise ValueError(f"parent {version_label(parent)} of version {version_label(version)} is made after it")
        if parent != NO_VERSION and parent not in self.entries:
            raise ValueError(f"parent {version_label(parent)} of version {version_label(version)} is unknown")
        self.entries[version] = LineageEntry(version, step, parent)

    def line(self, version: int) -> Iterator[Version]:
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
            raise KeyError(f"versions {version_label(sampled)} and {version_label(using)} have no common ancestor")
        return self.entries[sampled].step + self.entries[using].step - 2 * self.entries[left].step


@dataclass(frozen=True, slots=True)
class WeightManifest:
    """One published set of weights: a Hugging Face folder that is complete and will not change."""

    version: Version
    step: int
    parent: Version
    path: str
    """Folder with config.json and safetensors files."""
    sha256: str
    """Of the safetensors file."""
    tensors: int
    bytes: int
