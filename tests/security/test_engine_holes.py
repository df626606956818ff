"""If these fail, an engine through which containers are known to reach their host is used without a word, or a repaired
one is blamed."""

from __future__ import annotations

import pytest

from launch.doctor.engine_holes import find_holes

LEAKED, RACES = "CVE-2024-21626", "CVE-2025-31133"


@pytest.mark.parametrize(
    ("component", "version", "build", "holes"),
    [
        ("runc", "1.0.0-rc93", "", [LEAKED, RACES]),
        ("runc", "1.1.11", "", [LEAKED, RACES]),
        ("runc", "1.1.12", "v1.1.12-0-g51d5e94", [RACES]),
        ("runc", "1.1.5+ds1", "1.1.5+ds1-1+deb12u1", [RACES]),
        ("runc", "1.2.7", "", [RACES]),
        ("runc", "1.2.8", "", []),
        ("runc", "1.3.2", "", [RACES]),
        ("runc", "1.3.3", "", []),
        ("runc", "1.5.0", "", []),
        ("runc", "", "", []),
        ("Engine", "20.10.17", "", ["CVE-2022-36109"]),
        ("Engine", "20.10.24+dfsg1", "", []),
        ("Engine", "28.2.2", "", []),
        ("Podman Engine", "1.0.0", "", []),
    ],
)
def test_versions_with_known_holes_are_named(component: str, version: str, build: str, holes: list[str]):
    said = list(find_holes([{"Name": component, "Version": version, "Details": {"GitCommit": build}}]))
    assert len(said) == len(holes)
    assert all(hole in sentence for hole, sentence in zip(holes, said, strict=True))


def test_components_without_details_are_read():
    assert not list(find_holes([{"Name": "containerd", "Version": "1.6.20"}, {}]))
