"""Reads the memory of this process."""

from __future__ import annotations

from pathlib import Path


def reset_peak() -> None:
    """Reset the peak to the current resident memory."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Return the peak of the resident memory since the start, or since :func:`reset_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
