"""The kernel, Python and the packages, held against what this version of longshore was tested with."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from launch.doctor.check_runner import make_host_check
from launch.doctor.finding import CheckName, Finding, failed, ok, warning
from launch.doctor.requirements import HostRequirements
from launch.run_records.reproducibility import CHECKOUT_ROOT, RECORDED_PACKAGES
from protocol.dependencies import installed_version

_OLDEST_PYTHON = (3, 11)
_OLDEST_KERNEL = (4, 18)
"""overlayfs as Docker needs it for thousands of containers."""
_MAKE = "run `make setup`, which installs constraints.txt"


@dataclass(frozen=True, slots=True)
class VersionFacts:
    kernel: tuple[int, ...]
    python: tuple[int, ...]
    installed: dict[str, str]
    """Package → version; empty where it is not installed."""
    pinned: dict[str, str]
    """The same, of those that constraints.txt names; none where there is no checkout."""


def look(wants: HostRequirements) -> VersionFacts:
    del wants
    return VersionFacts(
        kernel=_numbers(os.uname().release),
        python=sys.version_info[:3],
        installed={name: installed_version(name) for name in RECORDED_PACKAGES},
        pinned={
            name: pin for name, pin in _pins(CHECKOUT_ROOT / "constraints.txt").items() if name in RECORDED_PACKAGES
        },
    )


def _numbers(release: str) -> tuple[int, ...]:
    """``6.18.44-fc`` → (6, 18)."""
    return tuple(int(part) for part in release.split(".")[:2] if part.isdigit())


def _pins(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else ()
    parted = (line.split("#")[0].strip().partition("==") for line in lines)
    return {name.strip(): version.split(";")[0].strip() for name, equals, version in parted if equals}


def judge(facts: VersionFacts, wants: HostRequirements) -> list[Finding]:
    del wants
    found: list[Finding] = []
    if facts.python < _OLDEST_PYTHON:
        python, oldest = ".".join(map(str, facts.python)), ".".join(map(str, _OLDEST_PYTHON))
        fix = f"`make setup PYTHON=python{oldest}`"
        found.append(failed(CheckName.VERSIONS, f"Python {python} is older than {oldest}", fix))
    if facts.kernel and facts.kernel < _OLDEST_KERNEL:
        kernel, oldest = ".".join(map(str, facts.kernel)), ".".join(map(str, _OLDEST_KERNEL))
        said = f"Linux {kernel} is older than {oldest}, with which nothing was tried"
        found.append(warning(CheckName.VERSIONS, said, "start a newer kernel"))
    if missing := [name for name, version in facts.installed.items() if not version]:
        found.append(failed(CheckName.VERSIONS, f"{', '.join(missing)} not installed in {sys.prefix}", _MAKE))
    if other := _others(facts):
        said = "not what this was tested with: " + ", ".join(other)
        found.append(warning(CheckName.VERSIONS, said, _MAKE))
    if found:
        return found
    named = ", ".join(f"{name} {version}" for name, version in facts.installed.items())
    return [ok(CheckName.VERSIONS, f"Python {platform.python_version()}, {named}")]


def _others(facts: VersionFacts) -> list[str]:
    """Packages of another version than is pinned; another build of the same version (``+cu128``) is none."""
    return [
        f"{name} {version} (tested: {facts.pinned[name]})"
        for name, version in facts.installed.items()
        if version and name in facts.pinned and version.partition("+")[0] != facts.pinned[name].partition("+")[0]
    ]


VERSIONS_CHECK = make_host_check((CheckName.VERSIONS,), look, judge, deadline_s=10.0, timeout_fix=_MAKE)
