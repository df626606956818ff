"""The list of checks of one machine, and the two ways to go through it.

:func:`examine_host` is for each machine of a cluster: plain values in and out, so that both can be sent.
:func:`require_host` is for a run that is about to start on this machine: only what takes moments, and what fails is an
error.
"""

from __future__ import annotations

from launch.doctor.check_runner import run_checks
from launch.doctor.clock import CLOCK_CHECK
from launch.doctor.docker_engine import DOCKER_ENGINE_CHECK
from launch.doctor.finding import Finding, require_no_failure
from launch.doctor.gpu import GPU_CHECK, GPU_DEVICE_CHECK
from launch.doctor.limits import ULIMITS_CHECK
from launch.doctor.ports import PORTS_CHECK
from launch.doctor.requirements import HostRequirements
from launch.doctor.storage import SHM_CHECK, STORAGE_CHECK
from launch.doctor.versions import VERSIONS_CHECK

HOST_CHECKS = (
    PORTS_CHECK,
    STORAGE_CHECK,
    DOCKER_ENGINE_CHECK,
    SHM_CHECK,
    ULIMITS_CHECK,
    CLOCK_CHECK,
    GPU_CHECK,
    VERSIONS_CHECK,
)


def check_host(wants: HostRequirements) -> list[Finding]:
    """What is right and wrong with this machine; takes as long as the slowest check, each of which has a deadline."""
    return run_checks(HOST_CHECKS, wants)


def require_host(wants: HostRequirements) -> None:
    """Raises UserError for the first thing that would keep a run from starting here."""
    quick = tuple(check for check in HOST_CHECKS if check.quick)
    require_no_failure(run_checks((*quick, GPU_DEVICE_CHECK), wants))
