"""Limits of a container whose task or service names none."""

from __future__ import annotations

MEMORY_MB = 256
PIDS = 64
SERVICE_PIDS = 256
CPUS = 1.0
SHM_MB = 64
