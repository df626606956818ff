"""The list of checks of one machine, and the two ways to go through it.

:func:`examine_host` is for each machine of a cluster: plain values in and out, so that both can be sent.
:func:`require_host` is for a run that is about to start on this machine: only what takes moments, and what fails is an
error.
"""

from __future__ import annotations

from launch.doctor.clock import CLOCK
from launch.doctor.engine import ENGINE
from launch.doctor.finding import Finding, require
from launch.doctor.gpu import DEVICES, GPU
from launch.doctor.limits import ULIMITS
from launch.doctor.looking import examine
from launch.doctor.ports import PORTS
from launch.doctor.storage import SHM, STORAGE
from launch.doctor.versions import VERSIONS
from launch.doctor.wants import HostWants

HOST_CHECKS = (PORTS, STORAGE, ENGINE, SHM, ULIMITS, CLOCK, GPU, VERSIONS)


def examine_host(wants: HostWants) -> list[Finding]:
    """What is right and wrong with this machine; takes as long as the slowest check, each of which has a deadline."""
    return examine(HOST_CHECKS, wants)


def require_host(wants: HostWants) -> None:
    """Raises UserError for the first thing that would keep a run from starting here."""
    quick = tuple(check for check in HOST_CHECKS if check.quick)
    require(examine((*quick, DEVICES), wants))
