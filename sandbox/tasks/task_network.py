"""The network that the phases of a task have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import with_config

from sandbox.tasks.strict_values import STRICT


class NetworkMode(StrEnum):
    """The network access of one phase of a task."""

    NONE = "none"
    PROXY = "proxy"
    """The allowed hosts, through the pool's caching proxy."""
    FULL = "full"


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class TaskNetwork:
    """The network access of each phase."""

    build: NetworkMode = NetworkMode.FULL
    agent: NetworkMode = NetworkMode.NONE
    verify: NetworkMode = NetworkMode.NONE
    allowed_hosts: tuple[str, ...] = ()
    """Hosts for phases with ``proxy``: names, ``*.example.org`` for subdomains, addresses, ranges like
    ``192.0.2.0/24``; ports 80 and 443 unless given."""

    @property
    def is_offline(self) -> bool:
        """True if neither the agent nor the tests have a network; the build may have one."""
        return self.agent is NetworkMode.NONE and self.verify is NetworkMode.NONE


OFFLINE = TaskNetwork()
ONLINE = TaskNetwork(agent=NetworkMode.FULL, verify=NetworkMode.FULL)
