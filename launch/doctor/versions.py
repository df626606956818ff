"""Compares kernel, Python and packages with the versions that longshore was tested with."""

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
"""First kernel whose overlayfs supports thousands of containers."""
_MAKE = "run `make setup`, which installs constraints.txt"


@dataclass(frozen=True, slots=True)
class VersionFacts:
    kernel: tuple[int, ...]
    python: tuple[int, ...]
    installed: dict[str, str]
    """Package → version; empty if it is not installed."""
    pinned: dict[str, str]
    """Package → version in constraints.txt; empty without a checkout."""


def read_version_facts(requirements: HostRequirements) -> VersionFacts:
    del requirements
    return VersionFacts(
        kernel=_numbers(os.uname().release),
        python=sys.version_info[:3],
        installed={name: installed_version(name) for name in RECORDED_PACKAGES},
        pinned={
            name: pin for name, pin in _pins(CHECKOUT_ROOT / "constraints.txt").items() if name in RECORDED_PACKAGES
        },
    )


def _numbers(release: str) -> tuple[int, ...]:
    """Return ``6.18.44-fc`` as (6, 18)."""
    return tuple(int(part) for part in release.split(".")[:2] if part.isdigit())


def _pins(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else ()
    parted = (line.split("#")[0].strip().partition("==") for line in lines)
    return {name.strip(): version.split(";")[0].strip() for name, equals, version in parted if equals}


def check_versions(facts: VersionFacts, requirements: HostRequirements) -> list[Finding]:
    del requirements
    found: list[Finding] = []
    if facts.python < _OLDEST_PYTHON:
        python, oldest = ".".join(map(str, facts.python)), ".".join(map(str, _OLDEST_PYTHON))
        fix = f"`make setup PYTHON=python{oldest}`"
        found.append(failed(CheckName.VERSIONS, f"Python {python} is older than {oldest}", fix))
    if facts.kernel and facts.kernel < _OLDEST_KERNEL:
        kernel, oldest = ".".join(map(str, facts.kernel)), ".".join(map(str, _OLDEST_KERNEL))
        message = f"Linux {kernel} is older than {oldest}, the oldest that was tested"
        found.append(warning(CheckName.VERSIONS, message, "boot a newer kernel"))
    if missing := [name for name, version in facts.installed.items() if not version]:
        found.append(failed(CheckName.VERSIONS, f"{', '.join(missing)} not installed in {sys.prefix}", _MAKE))
    if other := _others(facts):
        message = "different from the tested versions: " + ", ".join(other)
        found.append(warning(CheckName.VERSIONS, message, _MAKE))
    if found:
        return found
    named = ", ".join(f"{name} {version}" for name, version in facts.installed.items())
    return [ok(CheckName.VERSIONS, f"Python {platform.python_version()}, {named}")]


def _others(facts: VersionFacts) -> list[str]:
    """Return packages whose version differs from the pinned one; another build (``+cu128``) does not."""
    return [
        f"{name} {version} (tested: {facts.pinned[name]})"
        for name, version in facts.installed.items()
        if version and name in facts.pinned and version.partition("+")[0] != facts.pinned[name].partition("+")[0]
    ]


VERSIONS_CHECK = make_host_check(
    (CheckName.VERSIONS,), read_version_facts, check_versions, deadline_s=10.0, timeout_fix=_MAKE
)
