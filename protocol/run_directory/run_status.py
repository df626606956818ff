"""Status of a run, read from the files of its directory."""

from __future__ import annotations

import fcntl
import os
from enum import StrEnum
from pathlib import Path

from protocol.run_directory.json_fields import Event, get_mapping, read_json_object
from protocol.run_directory.layout import CONFIG_FILE, LOCK_FILE, SUMMARY_FILE


class RunStatus(StrEnum):
    """The state of a run as a whole."""

    RUNNING = "running"
    """A driver holds the run's lock."""
    FINISHED = "finished"
    """The run reached its end."""
    FAILED = "failed"
    """The run reached its end, but one of its own checks did not hold."""
    STOPPED = "stopped"
    """The run ended early and can be resumed."""
    DAMAGED = "damaged"
    """No driver holds the lock, and the run's configuration cannot be read, or its directory holds more than files."""


def read_run_status(run_dir: Path, *, look_only: bool = False) -> RunStatus:
    """Return the status of a run; ``look_only`` is that of :func:`is_running`."""
    if is_running(run_dir, look_only=look_only):
        return RunStatus.RUNNING
    config = run_dir / CONFIG_FILE
    if config.exists() and not is_config_readable(read_json_object(config)):
        return RunStatus.DAMAGED
    summary = read_json_object(run_dir / SUMMARY_FILE)
    return RunStatus.STOPPED if summary is None else summarised_status(summary)


def summarised_status(summary: Event) -> RunStatus:
    """Return the status of a run without a driver whose ``summary.json`` is ``summary``."""
    if summary.get("finished") is False:
        return RunStatus.STOPPED
    return RunStatus.FAILED if summary.get("ok") is False else RunStatus.FINISHED


def is_config_readable(record: Event | None) -> bool:
    """Return whether the content of ``config.json`` holds a configuration of sections."""
    config = get_mapping(record or {}, "config")
    return bool(config) and all(isinstance(section, dict) for section in config.values())


def is_running(run_dir: Path, *, look_only: bool = False) -> bool:
    """Return whether a driver holds the run's lock.

    By default this tries a shared lock for a moment, which also sees drivers in other containers and on other hosts.
    With ``look_only`` it reads the kernel's list of locks, so that it can never keep a driver from taking the lock.
    """
    try:
        return _is_listed(run_dir / LOCK_FILE) if look_only else _is_locked(run_dir / LOCK_FILE)
    except OSError:
        return False


def _is_locked(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _is_listed(path: Path) -> bool:
    inode = str(path.stat().st_ino)
    locks = (line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines())
    return any(len(each) > 5 and each[1] == "FLOCK" and each[5].rpartition(":")[2] == inode for each in locks)
