"""Reports the end of a run: an event, and a message with the next command for a person."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any

from launch.hosts.membership_watch import ClusterLostError
from launch.run_records.run_context import RunContext
from launch.run_records.run_directory import RunDirectory
from protocol.cli.exit_codes import EXIT_FAILED
from protocol.cli.output import JsonOutput
from protocol.errors import InfraError, UserError
from protocol.files.filesystem import free_bytes
from protocol.journal import DiskFullError
from protocol.run_directory.layout import resume_command
from protocol.run_directory.process_log import get_logger

_NO_SPACE_BYTES = 1 << 20
_log = get_logger(__name__)


@contextmanager
def report_end(run: RunContext) -> Generator[None]:
    """Emit how the run ended while the page still listens.  Raises UserError if the disk is full."""
    reason = "interrupted"
    try:
        yield
        reason = ""
    except DiskFullError as error:
        reason = str(error)
        raise UserError(f"{error}; nothing is lost: go on with {resume_command(run.directory.path)}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        _log.exception("the run ends")
        raise_if_disk_full(run.directory, error)
        if isinstance(error, InfraError):
            run.console.print(f"to go on with the run: {resume_command(run.directory.path)}")
        raise
    finally:
        run.events.emit("run.finished", ok=not reason, reason=reason)


def raise_if_disk_full(directory: RunDirectory, error: Exception) -> None:
    """Raise UserError if the disk is full, in place of the errors that this causes."""
    path, free = directory.path, free_bytes(directory.path)
    if free < _NO_SPACE_BYTES and not isinstance(error, UserError):
        raise UserError(
            f"{path} has no space left ({free >> 10} KB free), and that ended the run: free some space "
            f"(du -xh {path} | sort -h | tail). Nothing that was acknowledged is lost: go on with "
            f"{resume_command(path)}"
        ) from error


async def end_process_if_cluster_lost(work: Coroutine[Any, Any, None], run: RunContext) -> None:
    """Run ``work``, and end this process at once if the cluster is lost: an orderly end would wait for Ray for ever.
    The process reaper ends the other processes."""
    try:
        await work
    except ClusterLostError as error:
        run.events.emit("run.finished", ok=False, reason=str(error))
        resume = resume_command(run.directory.path)
        line = f"error: {error}; nothing that was acknowledged is lost: go on with {resume}"
        run.console.print(line)
        JsonOutput.end_process(EXIT_FAILED, line)
