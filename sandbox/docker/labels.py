"""The Docker labels by which longshore finds its own containers, committed images, volumes and networks."""

from __future__ import annotations

_PREFIX = "longshore"
RUN_LABEL = f"{_PREFIX}.run"
"""Id of the run that a container belongs to."""
POOL_LABEL = f"{_PREFIX}.pool"
"""Name of the pool that started it."""
POOL_PROCESS_LABEL = f"{_PREFIX}.pool_process"
"""Random id of one pool in one process: another process with the same pool name has another id."""
OWNER_LABEL = f"{_PREFIX}.owner"
"""The process that owns it, in the form of :mod:`sandbox.docker.owner`; a committed image inherits the label."""
EXPIRES_LABEL = f"{_PREFIX}.expires"
"""Unix time in whole seconds after which it is certainly unused."""
NETWORK_LABEL = f"{_PREFIX}.network"
"""Private network of a task service's container, or of a session whose containers share a volume."""
SERVICE_LABEL = f"{_PREFIX}.service"
"""Name of a task service's container on that network."""
