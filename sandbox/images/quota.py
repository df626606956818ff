"""Which image goes next when an engine holds more than it may.  Pure.

An image costs what it adds to the image it was built from, so that a base shared by a hundred builds counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image as an engine lists it, intermediate ones included."""

    id: str
    parent: str
    """Id of the image it was built from on this engine; empty for one that came whole."""
    size_bytes: int
    """With all that it was built from."""
    names: tuple[str, ...]


def used_bytes(images: Sequence[StoredImage], ours: Collection[str]) -> int:
    """What our images (by name) take up, with the nameless ones that they alone were built from."""
    by_id = {each.id: each for each in images}
    counted: set[str] = set()
    total = 0
    for image in images:
        at: StoredImage | None = image if any(name in ours for name in image.names) else None
        while at is not None and at.id not in counted:
            counted.add(at.id)
            below = by_id.get(at.parent)
            total += at.size_bytes - (below.size_bytes if below else 0)
            at = below if below is not None and not below.names else None
    return total


def choose_image_to_evict(
    images: Sequence[StoredImage], last_used: Mapping[str, float], in_use: Collection[str], kept: Collection[str]
) -> str | None:
    """Name of our least recently used image that may go; None when there is none.

    ``last_used`` has our names; ``in_use`` the ids of images that containers use; ``kept`` the names that may not go.
    An image that another one with a name was built from stays until that one has gone.
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
