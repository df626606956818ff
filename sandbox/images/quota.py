"""Chooses the image to evict when an engine exceeds the quota. Pure.

An image costs what it adds to the image it was built from, so a base shared by a hundred builds counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image as an engine lists it, including intermediate ones."""

    id: str
    parent: str
    """Id of the image it was built from on this engine; empty for one that was pulled or imported."""
    size_bytes: int
    """Size including all images that it was built from."""
    names: tuple[str, ...]


def used_bytes(images: Sequence[StoredImage], own_names: Collection[str]) -> int:
    """Return the bytes of longshore's images (by name) and of the unnamed images that only they were built from."""
    by_id = {each.id: each for each in images}
    counted: set[str] = set()
    total = 0
    for image in images:
        at: StoredImage | None = image if any(name in own_names for name in image.names) else None
        while at is not None and at.id not in counted:
            counted.add(at.id)
            below = by_id.get(at.parent)
            total += at.size_bytes - (below.size_bytes if below else 0)
            at = below if below is not None and not below.names else None
    return total


def choose_image_to_evict(
    images: Sequence[StoredImage], last_used: Mapping[str, float], in_use: Collection[str], kept: Collection[str]
) -> str | None:
    """Return the name of longshore's least recently used image that may be evicted; None if there is none.

    ``last_used``: longshore's names; ``in_use``: ids of images of containers; ``kept``: names that may not be evicted.
    An image that another named one was built from stays until that one is removed.
    """
    needed = _ancestors_of_named(images) | set(in_use)
    candidates = [
        (last_used[name], name)
        for image in images
        if image.id not in needed
        for name in image.names
        if name in last_used and name not in kept
    ]
    return min(candidates)[1] if candidates else None


def _ancestors_of_named(images: Sequence[StoredImage]) -> set[str]:
    by_id = {each.id: each for each in images}
    found: set[str] = set()
    for image in images:
        at = by_id.get(image.parent) if image.names else None
        while at is not None and at.id not in found:
            found.add(at.id)
            at = by_id.get(at.parent)
    return found
