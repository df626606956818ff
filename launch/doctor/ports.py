"""Checks ports: those in the configuration are free, and the kernel has enough ephemeral ones."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path

from launch.doctor.check_runner import make_host_check
from launch.doctor.finding import CheckName, Finding, finding_from_error, ok, warning
from launch.doctor.requirements import HostRequirements
from protocol.errors import UserError

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_MIN_EPHEMERAL = 4000
"""Ray, SGLang, the stream and each sandbox use some, and a closed connection keeps its port for a minute."""


@dataclass(frozen=True, slots=True)
class PortFacts:
    taken: tuple[UserError, ...]
    ephemeral_ports: int
    """Number of ephemeral ports; 0 if unknown."""


def read_port_facts(requirements: HostRequirements) -> PortFacts:
    taken: list[UserError] = []
    for key, port in requirements.ports:
        try:
            require_free_port(port, key)
        except UserError as error:
            taken.append(error)
    ephemeral = 0
    with contextlib.suppress(OSError, ValueError):
        least, most = map(int, _RANGE.read_text().split())
        ephemeral = most - least + 1
    return PortFacts(tuple(taken), ephemeral)


def check_ports(facts: PortFacts, requirements: HostRequirements) -> list[Finding]:
    found = [finding_from_error(CheckName.PORTS, error) for error in facts.taken]
    if 0 < facts.ephemeral_ports < _MIN_EPHEMERAL:
        message = f"the kernel has only {facts.ephemeral_ports:,} ephemeral ports, which a run can exhaust"
        found.append(warning(CheckName.PORTS, message, "`sysctl -w net.ipv4.ip_local_port_range='32768 60999'`"))
    named = ", ".join(f"{port} ({key})" for key, port in requirements.ports if port)
    free = f"{named} free" if named else "none is set, free ones are chosen"
    return found or [ok(CheckName.PORTS, f"{free}; {facts.ephemeral_ports:,} ephemeral ports")]


PORTS_CHECK = make_host_check(
    (CheckName.PORTS,), read_port_facts, check_ports, deadline_s=5.0, timeout_fix="check `ss -ltn` and `dmesg`"
)


def require_free_port(port: int, key: str) -> None:
    """Raise UserError if ``port`` (0: any) is taken; ``key`` is the configuration's name for it."""
    if not port:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(
                f"port {port} is in use ({error.strerror}): use another, --set {key}=PORT, or 0 for a free one"
            ) from error
