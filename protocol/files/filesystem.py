"""File-system types, free space, and atomic writes."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from protocol.errors import InfraError, UserError

_NETWORK = frozenset({
    "9p", "acfs", "afs", "auristorfs", "beegfs", "ceph", "cifs", "coda", "davfs", "fhgfs", "gfs2", "gpfs", "ibrix",
    "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs",
})  # fmt: skip
_NETWORK_FUSE = frozenset({
    "beegfs", "blobfuse", "blobfuse2", "ceph-fuse", "cephfs", "curlftpfs", "cvmfs", "gcsfuse", "glusterfs", "goofys",
    "juicefs", "mfs", "moosefs", "mountpoint-s3", "rclone", "s3fs", "seaweedfs", "sshfs", "weed",
})  # fmt: skip

_CHUNK_BYTES = 1 << 16


def filesystem_type(folder: PurePath, mountinfo: str) -> str:
    """Return the type of the file system that holds ``folder`` (absolute, without links), from the text of
    ``/proc/self/mountinfo``; a FUSE without a type of its own is named by its source."""
    found, depth = "", -1
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        mount = PurePath(_unescaped(before.split()[4]))
        if folder.is_relative_to(mount) and len(mount.parts) >= depth:
            kind, source = after.split()[:2]
            found, depth = f"fuse.{source}" if kind == "fuse" else kind, len(mount.parts)
    return found


def is_network_filesystem(kind: str) -> bool:
    """Return whether locks and fsync of a file system of this type depend on another machine."""
    name, _, fuse = kind.partition(".")
    return name in _NETWORK or (name == "fuse" and fuse in _NETWORK_FUSE)


def require_local_filesystem(folder: Path, mountinfo: str | None = None) -> None:
    """Raise UserError if ``folder`` is on a network file system."""
    if mountinfo is None:
        source = Path("/proc/self/mountinfo")
        if not source.exists():
            return
        mountinfo = source.read_text(errors="replace")
    kind = filesystem_type(folder.resolve(), mountinfo)
    if is_network_filesystem(kind):
        raise UserError(
            f"{folder} is on a network file system ({kind}), where SQLite's locks and fsync cannot be trusted: "
            'start again with the folder of runs on a local disk of the head node, such as run.dir = "/var/tmp/runs"'
        )


def free_bytes(folder: Path) -> int:
    """Return the bytes that an unprivileged process may still write under ``folder``."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


class UntrustedFolderError(InfraError):
    """Another account can change what is in a folder that has to be private."""


def make_private_folder(folder: Path) -> None:
    """Make ``folder`` with mode 0700, unless this account has done so, and the folders above it.

    Its name may be known to other accounts, and a folder above it open to them, like ``/tmp``.  Raises
    UntrustedFolderError if one of them made it or can replace it, and OSError.
    """
    folder.parent.mkdir(0o755, parents=True, exist_ok=True)
    for above in {folder.parent, folder.parent.resolve()}:
        status = above.lstat()
        if status.st_uid not in {0, os.geteuid()}:
            raise UntrustedFolderError(f"{above} belongs to another account (user id {status.st_uid})")
        if stat.S_ISDIR(status.st_mode) and status.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            raise UntrustedFolderError(f"{above} can be changed by every account")
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UntrustedFolderError(f"{folder} is not a folder that only this account can enter")


def inspection_command(folder: Path, error_number: int) -> str:
    """Return the command that shows a person why nothing can be written to an existing ``folder``."""
    match error_number:
        case errno.EROFS:
            return f"findmnt -T {folder}"
        case errno.ENOSPC | errno.EDQUOT:
            return f"df -h {folder}"
        case _:
            return f"ls -ld {folder}"


def nearest_existing(folder: Path) -> Path:
    """Return the absolute path of ``folder``, or of the nearest one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


@contextmanager
def explain_write_errors(folder: Path, advice: str) -> Generator[None]:
    """Raise UserError, with what the file system says and ``advice``, instead of OSError."""
    try:
        yield
    except OSError as error:
        command = inspection_command(nearest_existing(folder), error.errno or 0)
        raise UserError(
            f"cannot write to {folder}: {error.strerror or error} (`{command}` shows why); {advice}"
        ) from error


def append_atomically(path: Path, data: bytes) -> None:
    """Append all of ``data`` or, raising OSError, nothing; only the death of the process can leave a part."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        write_atomically(fd, data)
    finally:
        os.close(fd)


def cut_torn_line(path: Path) -> None:
    """Remove an incomplete last line, left by a process that died in :func:`append_atomically`, if ``path`` exists."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        kept = file.seek(0, os.SEEK_END)
        while kept:
            start = max(0, kept - _CHUNK_BYTES)
            file.seek(start)
            kept = start + file.read(kept - start).rfind(b"\n") + 1
            if kept > start:
                break
        file.truncate(kept)


def write_atomically(fd: int, data: bytes) -> None:
    """Like :func:`append_atomically`, for a file that is open for appending and has no other writer."""
    written = os.write(fd, data)
    if written != len(data):
        os.ftruncate(fd, os.fstat(fd).st_size - written)
        raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes could be written")


@contextmanager
def build_folder(folder: Path) -> Generator[Path]:
    """Yield an empty folder to fill, which is renamed to ``folder`` at the end, so that ``folder`` is complete or
    absent.

    A partial folder of a killed process is replaced; only one process may fill the same folder at a time.  Raises
    OSError if ``folder`` exists and is not empty.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably: a reader sees the old or the new one, even after power loss.  Raises
    OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        fsync_path(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    fsync_path(path.parent)


def fsync_path(path: Path) -> None:
    """Make a file's content, or a folder's entries, survive power loss."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unescaped(mount: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        mount = mount.replace(code, char)
    return mount
