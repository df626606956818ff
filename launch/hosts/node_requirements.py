"""The requirements of a run on one node, checked on the node itself.

The doctor's checks (:func:`launch.doctor.host_checks.check_host`) cover the machine; here the node's software is
compared with the driver's.  The checks start nothing and leave nothing behind.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from launch.config import RunConfig
from launch.doctor.finding import CheckName, Finding, FindingLevel, failed
from launch.doctor.host_checks import check_host
from launch.doctor.requirements import HostRequirements, node_host_requirements
from launch.hosts.cluster_nodes import NodeRole
from launch.run_records.reproducibility import CHECKOUT_ROOT
from protocol.dependencies import installed_version

_ROOMS = ("protocol", "sandbox", "actors", "learner", "launch")
_MAX_CLOCK_OFFSET_S = 2.0
"""Maximum offset at which the order of two machines' events is known."""
_PACKAGES = ("ray", "torch", "sglang", "transformers", "pyzmq")
_ROLE_BY_CHECK = {
    CheckName.DOCKER: NodeRole.WORKER,
    CheckName.CGROUP: NodeRole.WORKER,
    CheckName.ADDRESS_POOLS: NodeRole.WORKER,
    CheckName.GPU: NodeRole.ENGINE,
    CheckName.NCCL: NodeRole.ENGINE,
}


@dataclass(frozen=True, slots=True)
class InstalledSoftware:
    """The software of a node, which must be the same on every node."""

    python: str
    packages: dict[str, str]
    code: str
    """Digest of longshore's own files."""


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """The requirements of a run on a node."""

    host_requirements: HostRequirements
    software: InstalledSoftware
    """The driver's software."""


def make_node_requirements(config: RunConfig) -> NodeRequirements:
    """Return the requirements of the run that ``config`` describes."""
    return NodeRequirements(node_host_requirements(config), read_installed_software())


def read_installed_software() -> InstalledSoftware:
    # CPU and CUDA builds of torch are the same version.
    packages = {name: installed_version(name).partition("+")[0] for name in _PACKAGES}
    return InstalledSoftware(platform.python_version(), packages, code_digest())


def inspect_node(required: NodeRequirements) -> tuple[Finding, ...]:
    """Return the failures and warnings of this machine."""
    found = (*check_host(required.host_requirements), *compare_software(read_installed_software(), required.software))
    return tuple(each for each in found if each.level is not FindingLevel.OK)


def role_lost(finding: Finding) -> NodeRole | None:
    """Return the role that a node loses if ``finding`` failed; None if it cannot be used at all."""
    return _ROLE_BY_CHECK.get(finding.check)


def judge_clock_offset(behind_s: float, uncertain_s: float) -> tuple[Finding, ...]:
    """Return a failure if the node's clock is too far from the driver's: ``behind_s`` behind it, give or take
    ``uncertain_s``."""
    if abs(behind_s) - uncertain_s <= _MAX_CLOCK_OFFSET_S:
        return ()
    which = "behind" if behind_s > 0 else "ahead of"
    problem = f"its clock is {abs(behind_s):.0f} s {which} the driver's"
    return (failed(CheckName.CLOCK, problem, "let chrony or ntpd set both"),)


def compare_software(here: InstalledSoftware, drivers: InstalledSoftware) -> Generator[Finding]:
    """Yield the differences between a node's software and the driver's."""
    if here.python != drivers.python:
        problem = f"Python {here.python}, and the driver has {drivers.python}"
        yield failed(CheckName.VERSIONS, problem, "start its Ray from an environment with the driver's version")
    if here.code != drivers.code:
        problem = f"other code of longshore in {CHECKOUT_ROOT} than the driver's"
        yield failed(CheckName.VERSIONS, problem, "bring both to the same commit")
    other = [
        f"{name} {here.packages.get(name) or 'none'} for {version}"
        for name, version in drivers.packages.items()
        if here.packages.get(name) != version
    ]
    if other:
        problem = f"other packages than the driver's: {', '.join(other)}"
        yield failed(CheckName.VERSIONS, problem, "run `make setup` there")


def code_digest(root: Path = CHECKOUT_ROOT) -> str:
    """Return the digest of all of longshore's modules."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
