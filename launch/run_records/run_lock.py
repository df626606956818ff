"""The lock on a run's directory: one driver at a time holds it, and the kernel releases it however the driver ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
from collections.abc import Generator
from pathlib import Path

from protocol.files.filesystem import inspection_command
from protocol.run_directory.layout import LOCK_FILE, RunDirectoryError


@contextlib.contextmanager
def hold_run_lock(run_dir: Path) -> Generator[None]:
    """Lock a run against drivers while the context is open.  Raises RunDirectoryError if a driver or another user has
    it."""
    try:
        fd = lock_run(run_dir / LOCK_FILE)
    except OSError as error:
        raise directory_error(run_dir, error) from error
    try:
        yield
    finally:
        os.close(fd)


def directory_error(run_dir: Path, error: OSError) -> RunDirectoryError:
    """Return the error for a file of the run that cannot be read or written; usually the run is another user's."""
    problem = f"{error.filename or run_dir}: {error.strerror}"
    try:
        own = run_dir.stat().st_uid == os.geteuid()
    except OSError:
        own = True
    if own or not isinstance(error, PermissionError):
        command = inspection_command(run_dir, error.errno or 0)
        return RunDirectoryError(f"{problem}: `{command}` shows why")
    return foreign_owner_error(problem, run_dir, run_dir)


def foreign_owner_error(problem: str, path: Path, run_dir: Path) -> RunDirectoryError:
    """Return the error for ``path``, which is ``run_dir`` or in it and belongs to another account."""
    owner, me = _user(path.lstat().st_uid), _user(os.geteuid())
    return RunDirectoryError(
        f"{problem}. {path} belongs to {owner}, and you are {me}: run this command as {owner} (sudo), or take the "
        f"run over: sudo chown -R {me} {run_dir}"
    )


def _user(uid: int) -> str:
    """Return a user's name, or the number if there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def lock_run(file: Path) -> int:
    """Take the lock and write this process's id to it.  Raises RunDirectoryError, and OSError if ``file`` is a link."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(fd, 64).decode().strip()
        os.close(fd)
        raise RunDirectoryError(
            f"{file.parent} is in use by process {owner}: wait for it or end it (kill -INT {owner}), then try again"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
