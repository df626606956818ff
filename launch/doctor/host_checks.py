"""The checks of one machine, and two ways to run them.

:func:`check_host` runs all of them, on any machine of a cluster: arguments and result can be sent.
:func:`require_host` runs only the quick ones, before a run starts on this machine, raises for a failure and
returns the warnings.
"""

from __future__ import annotations

from launch.doctor.check_runner import run_checks
from launch.doctor.clock import CLOCK_CHECK
from launch.doctor.docker_engine import DOCKER_ENGINE_CHECK
from launch.doctor.docker_exec import DOCKER_EXEC_CHECK
from launch.doctor.finding import Finding, FindingLevel, require_no_failure
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
    DOCKER_EXEC_CHECK,
    SHM_CHECK,
    ULIMITS_CHECK,
    CLOCK_CHECK,
    GPU_CHECK,
    VERSIONS_CHECK,
)


def check_host(requirements: HostRequirements) -> list[Finding]:
    """Return all findings on this machine; takes as long as the slowest check or its deadline."""
    return run_checks(HOST_CHECKS, requirements)


def require_host(requirements: HostRequirements) -> list[Finding]:
    """Return the warnings for a run that starts here.  Raises UserError for the first problem that prevents it."""
    quick = tuple(check for check in HOST_CHECKS if check.quick)
    found = run_checks((*quick, GPU_DEVICE_CHECK), requirements)
    require_no_failure(found)
    return [each for each in found if each.level is FindingLevel.WARNING]
