"""Checks storage: free bytes and inodes, the file system, and shared memory."""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from launch.doctor.check_runner import make_host_check
from launch.doctor.finding import CheckName, Finding, failed, ok, warning
from launch.doctor.requirements import HostRequirements
from launch.settings.cluster import OBJECT_STORE_BYTES
from protocol.cli.formatting import format_bytes
from protocol.files.filesystem import filesystem_type, inspection_command, is_network_filesystem, nearest_existing

_INODES = 10_000
"""Number of files of a short run; a long one has some hundred thousand."""
_MANY_INODES = 200_000
_NCCL_BYTES = 1 << 30
_SHM = Path("/dev/shm")  # noqa: S108  the kernel's own
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


@dataclass(frozen=True, slots=True)
class FolderFacts:
    existing_folder: Path
    """The folder, or the nearest one above it that exists."""
    free_bytes: int
    free_inodes: int
    inodes: int
    """Total number of inodes; 0 if the file system creates them on demand."""
    filesystem: str
    """Type of the file system; empty if unknown."""
    write_error: int = 0
    """The ``errno`` with which this process can create nothing there; 0 if it can."""


def read_folder_facts(folder: Path) -> FolderFacts:
    """Read the facts of a folder.  Raises OSError."""
    there = nearest_existing(folder)
    state, mounts = os.statvfs(there), Path("/proc/self/mountinfo")
    return FolderFacts(
        existing_folder=there,
        free_bytes=state.f_bavail * state.f_frsize,
        free_inodes=state.f_favail,
        inodes=state.f_files,
        filesystem=filesystem_type(there.resolve(), mounts.read_text(errors="replace")) if mounts.exists() else "",
        write_error=_write_error(there),
    )


def _write_error(folder: Path) -> int:
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return 0
    try:
        tempfile.TemporaryDirectory(dir=folder).cleanup()  # only trying tells why not
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def check_folder(facts: FolderFacts, requirements: HostRequirements) -> list[Finding]:
    return [check_disk(facts, requirements), _inodes(facts, requirements.folder_key), _kind(facts, requirements)]


def check_disk(facts: FolderFacts, requirements: HostRequirements) -> Finding:
    """Check free space and write permission."""
    elsewhere = f"put runs elsewhere with --set {requirements.folder_key}=FOLDER"
    if facts.write_error:
        return failed(CheckName.DISK, *_explain_write_error(facts.existing_folder, facts.write_error, elsewhere))
    reserve_bytes = requirements.reserve_mb << 20
    free, reserve = format_bytes(facts.free_bytes), format_bytes(reserve_bytes)
    if facts.free_bytes < reserve_bytes:
        return failed(
            CheckName.DISK,
            f"{facts.existing_folder} has {free} free and the run keeps {reserve} in reserve (run.disk_reserve_mb)",
            f"free some space, or {elsewhere}",
        )
    return ok(CheckName.DISK, f"{free} free in {facts.existing_folder}, {reserve} of it kept in reserve")


def _explain_write_error(folder: Path, number: int, elsewhere: str) -> tuple[str, str]:
    """Return the message and the fix for a folder where nothing can be created."""
    command = inspection_command(folder, number)
    match number:
        case errno.EACCES:
            return f"this user cannot write to {folder}", f"run this as its owner (`{command}`), or {elsewhere}"
        case errno.EROFS:
            return f"{folder} is on a read-only file system", f"mount it for writing (`{command}`), or {elsewhere}"
        case errno.ENOTDIR:
            return f"{folder} is not a folder", f"remove or rename it (`{command}`), or {elsewhere}"
        case _:
            return f"cannot write to {folder}: {os.strerror(number)}", f"`{command}` shows why; or {elsewhere}"


def _inodes(facts: FolderFacts, key: str) -> Finding:
    if not facts.inodes:
        return ok(CheckName.INODES, f"{facts.existing_folder} creates them on demand")
    message = f"{facts.free_inodes:,} more files fit into {facts.existing_folder}"
    fix = (
        f"remove some (`du --inodes -x {facts.existing_folder} | sort -n | tail`), "
        f"or put runs elsewhere (--set {key}=FOLDER)"
    )
    if facts.free_inodes < _INODES:
        return failed(CheckName.INODES, f"only {message}, and a short run makes {_INODES:,}", fix)
    if facts.free_inodes < _MANY_INODES:
        return warning(CheckName.INODES, f"{message}, and a long run makes more", fix)
    return ok(CheckName.INODES, message)


def _kind(facts: FolderFacts, requirements: HostRequirements) -> Finding:
    elsewhere = "put runs on a local disk of the head node, for example --set run.dir=/var/tmp/runs"
    if requirements.buffer and is_network_filesystem(facts.filesystem):
        where = f"{facts.existing_folder} is on a network file system ({facts.filesystem})"
        message = f"{where}, where SQLite's locks and fsync are unreliable"
        return failed(CheckName.FILE_SYSTEM, message, elsewhere)
    if requirements.buffer and facts.filesystem in _IN_MEMORY:
        message = (
            f"{facts.existing_folder} is in memory ({facts.filesystem}): a run there takes memory from "
            "sandboxes and is lost with a power failure"
        )
        return warning(CheckName.FILE_SYSTEM, message, elsewhere)
    return ok(
        CheckName.FILE_SYSTEM,
        f"{facts.existing_folder} is on {facts.filesystem or 'an unknown file system'}",
    )


@dataclass(frozen=True, slots=True)
class ShmFacts:
    there: bool
    total_bytes: int = 0
    free_bytes: int = 0


def read_shm_facts(requirements: HostRequirements) -> ShmFacts:
    del requirements
    if not _SHM.is_dir() or not os.access(_SHM, os.W_OK):
        return ShmFacts(there=False)
    state = os.statvfs(_SHM)
    return ShmFacts(there=True, total_bytes=state.f_blocks * state.f_frsize, free_bytes=state.f_bavail * state.f_frsize)


def check_shm(facts: ShmFacts, requirements: HostRequirements) -> list[Finding]:
    if not facts.there:
        message, fix = "missing or not writable for this user", "mount it: `mount -t tmpfs tmpfs /dev/shm`"
        return [failed(CheckName.SHM, f"{message}, and Ray and torch exchange data in it", fix)]
    users = f"{requirements.nodes} Ray nodes{' and NCCL' if requirements.gpu_keys else ''}"
    needed = requirements.nodes * OBJECT_STORE_BYTES + (_NCCL_BYTES if requirements.gpu_keys else 0)
    message = f"{format_bytes(facts.free_bytes)} of {format_bytes(facts.total_bytes)} are free"
    if facts.free_bytes >= needed:
        return [ok(CheckName.SHM, f"{message}, and a run needs {format_bytes(needed)}")]
    size = f"{-(-2 * needed >> 30)}g"
    return [
        warning(
            CheckName.SHM,
            f"{message}, and {users} need {format_bytes(needed)}; the rest spills to disk or fails",
            f"`mount -o remount,size={size} /dev/shm`, or start this container with `--shm-size={size}`",
        )
    ]


STORAGE_CHECK = make_host_check(
    (CheckName.DISK, CheckName.INODES, CheckName.FILE_SYSTEM),
    lambda requirements: read_folder_facts(requirements.folder),
    check_folder,
    deadline_s=10.0,
    timeout_fix="its file system hangs (`mount`, `df`): choose a folder on a local disk (run.dir, cluster.scratch_dir)",
)
SHM_CHECK = make_host_check(
    (CheckName.SHM,), read_shm_facts, check_shm, deadline_s=5.0, timeout_fix="check `mount` and `dmesg`"
)
