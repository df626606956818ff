"""What one node must have for a run, looked at on the node itself.

The machine is looked at by the doctor's list (:func:`launch.doctor.host_checks.examine_host`); what is said here
besides is whether the node runs what the driver runs.  It starts nothing and leaves nothing behind.
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
_CLOCK_S = 2.0
"""By more two machines' events cannot be told apart by their times."""
_PACKAGES = ("ray", "torch", "sglang", "transformers", "pyzmq")
_OF_A_ROLE = {
    CheckName.DOCKER: NodeRole.WORKER,
    CheckName.CGROUP: NodeRole.WORKER,
    CheckName.ADDRESS_POOLS: NodeRole.WORKER,
    CheckName.GPU: NodeRole.ENGINE,
    CheckName.NCCL: NodeRole.ENGINE,
}


@dataclass(frozen=True, slots=True)
class InstalledSoftware:
    """What runs here; the same on every node."""

    python: str
    packages: dict[str, str]
    code: str
    """Digest of our own files."""


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """What a run asks of a node."""

    host_requirements: HostRequirements
    software: InstalledSoftware
    """The driver's own, to be compared with."""


def make_node_requirements(config: RunConfig) -> NodeRequirements:
    """What the run that ``config`` describes asks."""
    return NodeRequirements(node_host_requirements(config), read_installed_software())


def read_installed_software() -> InstalledSoftware:
    # CPU and CUDA builds of torch are the same version.
    packages = {name: installed_version(name).partition("+")[0] for name in _PACKAGES}
    return InstalledSoftware(platform.python_version(), packages, code_digest())


def inspect_node(asked: NodeRequirements) -> tuple[Finding, ...]:
    """What is wrong on this machine, or could be better."""
    found = (*check_host(asked.host_requirements), *compare_software(read_installed_software(), asked.software))
    return tuple(each for each in found if each.level is not FindingLevel.OK)


def role_lost(finding: Finding) -> NodeRole | None:
    """What a node cannot be used for where ``finding`` failed; None: for nothing."""
    return _OF_A_ROLE.get(finding.check)


def judge_clock_offset(behind_s: float, uncertain_s: float) -> tuple[Finding, ...]:
    """``behind_s``: how far this node's clock was behind the driver's, known as exactly as the answer took."""
    if abs(behind_s) - uncertain_s <= _CLOCK_S:
        return ()
    which = "behind" if behind_s > 0 else "ahead of"
    said = f"its clock is {abs(behind_s):.0f} s {which} the driver's"
    return (failed(CheckName.CLOCK, said, "let chrony or ntpd set both"),)


def compare_software(here: InstalledSoftware, drivers: InstalledSoftware) -> Generator[Finding]:
    """What a node runs that the driver does not."""
    if here.python != drivers.python:
        said = f"Python {here.python}, and the driver has {drivers.python}"
        yield failed(CheckName.VERSIONS, said, "start its Ray from an environment with that one")
    if here.code != drivers.code:
        said = f"other code of longshore in {CHECKOUT_ROOT} than the driver's"
        yield failed(CheckName.VERSIONS, said, "bring both to the same commit")
    other = [
        f"{name} {here.packages.get(name) or 'none'} for {version}"
        for name, version in drivers.packages.items()
        if here.packages.get(name) != version
    ]
    if other:
        said = f"other packages than the driver's: {', '.join(other)}"
        yield failed(CheckName.VERSIONS, said, "run `make setup` there")


def code_digest(root: Path = CHECKOUT_ROOT) -> str:
    """Of all that we import."""
    whole = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            whole.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()
