"""Limits of the containers in which a build's RUN steps run.

The engine's builder limits memory and processor time, and files and descriptors of each process. It knows no limit on
the number of processes, none on capabilities and no word on whom the kernel ends first: those stay the engine's
defaults (docs/security.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from sandbox.docker.container_spec import ContainerLimits, ulimits
from sandbox.docker.engine import MachineSize
from sandbox.images.image_names import TaskWithImage

_PERIOD_US = 100_000
_LEAST_MEMORY_MB = 4096
_LEAST_CPUS = 2.0
_LARGEST_FILE_BYTES = 16 << 30


class BuildLimits(NamedTuple):
    """Limits of each RUN step."""

    memory_mb: int = _LEAST_MEMORY_MB
    cpus: float = _LEAST_CPUS

    @classmethod
    def for_task(cls, task: TaskWithImage, machine: MachineSize) -> BuildLimits:
        """Return the task's own limits, or the least with which packages can be installed if that is more; at most what
        the machine has, which may be smaller than the one that the image is for."""
        return cls(
            min(max(task.memory_mb or 0, _LEAST_MEMORY_MB), machine.memory_mb),
            min(max(task.cpus or 0.0, _LEAST_CPUS), machine.cpus),
        )

    def query(self, *, podman: bool) -> Mapping[str, str]:
        """Build the parameters of Docker's ``POST /build``, whose limits of a process Podman reads as texts."""
        memory = str(self.memory_mb << 20)
        limits = ulimits(ContainerLimits(file_bytes=_LARGEST_FILE_BYTES))
        texts = [f"{limit['Name']}={limit['Soft']}:{limit['Hard']}" for limit in limits]
        return {
            "memory": memory,
            "memswap": memory,
            "cpuperiod": str(_PERIOD_US),
            "cpuquota": str(int(self.cpus * _PERIOD_US)),
            "ulimits": json.dumps(texts if podman else limits),
        }
