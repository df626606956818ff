"""Known holes of engines through which a container reaches its host. Pure.

Only holes that our containers' settings leave open, from the projects' own advisories. A version says little of a
distribution's build, which repairs holes under an old number: the builds that are known to are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandbox.docker.retry import Json

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class KnownHole:
    """A hole of a component, and the versions that repair it."""

    component: str
    """As the engine names it in its answer to ``GET /version``."""
    names: str
    lets: str
    """What a container can do through the hole; completes "it lets a container …"."""
    fixed: tuple[tuple[int, int, int], ...]
    """First repaired version of each series; all later series are repaired."""
    builds: frozenset[str] = frozenset()
    """Builds of distributions that repair an older version."""

    def is_in(self, version: str, build: str) -> bool:
        """Return whether a version has the hole; one that cannot be read has not."""
        found = _VERSION.match(version)
        if found is None or build in self.builds:
            return False
        number = tuple(map(int, found.groups()))
        same_series = [each for each in self.fixed if each[:2] == number[:2]]
        return number < same_series[0] if same_series else number < max(self.fixed)


KNOWN_HOLES = (
    KnownHole("Engine", "CVE-2022-36109", "keep groups that its user should have lost", ((20, 10, 18),)),
    KnownHole(
        *("runc", "CVE-2024-21626", "reach the host's files through a leaked descriptor", ((1, 1, 12),)),
        frozenset({"1.1.5+ds1-1+deb12u1"}),
    ),
    KnownHole(
        "runc",
        "CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881",
        "write to files of the host's /proc by races of mounts",
        ((1, 2, 8), (1, 3, 3), (1, 4, 0)),
    ),
)


def find_holes(components: Sequence[Json]) -> Iterator[str]:
    """Yield a sentence for each known hole of an engine's components (``Components`` of ``GET /version``)."""
    for each in components:
        details: Json = each.get("Details") or {}
        build = str(details.get("GitCommit", ""))
        name, version = str(each.get("Name")), str(each.get("Version"))
        for hole in KNOWN_HOLES:
            if hole.component == name and hole.is_in(version, build):
                yield f"{name} {build or version} lets a container {hole.lets} ({hole.names})"
