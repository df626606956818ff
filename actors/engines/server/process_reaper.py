"""Ensures that a server's processes never outlive their owner, and that the owner learns of the server's death.

Run by path with the standard library only, so that it starts within milliseconds:
``python -I -S process_reaper.py GRACE_S -- COMMAND…``.  Standard input is a pipe whose write end the owner keeps.
Standard output is a pipe that gets two lines: ``<reaper's pid> <server's pid> <folder of temporary files>`` first, and
at the end the server's exit status, with the reason if one of its subprocesses caused it; end of file alone means that
the reaper died, and the folder is the owner's to remove.  Standard error is the server's log.

- The process that is started returns at once and the reaper is reparented, because Ray kills the children of an actor
  that ends before they could clean up.  The reaper leads a session; the server leads a process group in it.
- The owner's death (end of file), a byte on the pipe, or SIGTERM ends the group: SIGTERM, then SIGKILL after the grace.
- The server's death ends the rest of its group at once.  So does the death of a subprocess without which it cannot
  serve (:class:`_ServerSubprocesses`): left alone, a server whose detokenizer is gone hangs for a minute.
- The reaper's own death kills the server (PDEATHSIG).
- As child subreaper it inherits every descendant, including those that left the group; at the end it kills them, and
  exits only when none is left.
- What the server creates is its account's only, whatever the umask, and its temporary files, among them sockets of
  SGLang's that read pickles, lie in a folder that is removed at the end.
- Files in /dev/shm that the group made and mapped, or whose names carry one of its pids, are removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SCAN_EVERY_S = 1.0
_SCAN_MAPS_EVERY_S = 5.0
_NEW_S = 10.0
"""Age up to which an unattributed file in shared memory makes each scan look for its owner."""
_SETTLES_S = 0.1
"""Seconds to wait after a subprocess ended: a killed leader takes its subprocesses with it, and one may be seen
first."""
_SHM = Path("/dev/shm")  # noqa: S108  # the system's shared memory, where servers leave files
_NAMED = b"sglang::"
"""Prefix of the titles that SGLang's processes give themselves."""
_SPAWNED = b"--multiprocessing-fork"
"""Argument in the command line of a process spawned by multiprocessing, until it gives itself a title."""
_NAMED_BY_PID = re.compile(r"^(?:sgl|sglang|torch|psm)[A-Za-z_]*_(\d+)(?:_|$)")


def _start(command: list[str]) -> int:
    """Fork and run ``command`` as the leader of a process group; return its pid."""
    reaper = os.getpid()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != reaper:
        os._exit(1)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    try:
        os.execvp(command[0], command)  # noqa: S606  # an argument list
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error}\n".encode())
    os._exit(127)


def _members(group: int) -> set[int]:
    """Return the pids of the live processes of a process group."""
    return _processes(lambda pid: os.getpgid(pid) == group)


def _children() -> set[int]:
    """Return the pids of this process's own and inherited children."""
    return _processes(lambda pid: int(_stat(pid)[1]) == os.getpid())


def _processes(is_one: Callable[[int], bool]) -> set[int]:
    """Return the pids for which ``is_one`` is true; processes that vanish meanwhile are skipped."""
    found: set[int] = set()
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        with contextlib.suppress(OSError):
            if is_one(pid):
                found.add(pid)
    return found


def _mapped(pids: set[int]) -> set[int]:
    """Return the inodes of the files in /dev/shm that the processes have mapped; a semaphore is mapped under another
    name."""
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
            found |= {int(line.split(maxsplit=5)[4]) for line in lines if f" {_SHM}/" in line}
    return found


class _ServerSubprocesses:
    """The subprocesses without which a server cannot serve: its leader's children that have an SGLang title, or that
    multiprocessing has spawned and that will get one.

    Other processes (compilers, a resource tracker) may come and go.  A child of such a subprocess inherits its title
    until it executes another program, and does not count.
    """

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._pidfds: dict[int, int] = {}
        """Pid → file descriptor that is readable once the process has ended."""
        self._names: dict[int, str] = {}
        """Pid → its title without the prefix, if it has one."""

    @property
    def pidfds(self) -> list[int]:
        return list(self._pidfds.values())

    def scan(self, members: set[int]) -> None:
        """Find new subprocesses and the titles of known ones."""
        for pid in members - self._names.keys():
            with contextlib.suppress(OSError):
                self._inspect(pid)

    def ended(self, ready: list[int]) -> str:
        """Describe the one that has ended; empty if none has."""
        for pid, pidfd in self._pidfds.items():
            if pidfd in ready:
                return f"its {self._names.get(pid, 'subprocess')} {_how_ended(pid)}"
        return ""

    def _inspect(self, pid: int) -> None:
        pidfd = os.pidfd_open(pid)  # before reading its command line: the pid may be reused
        try:
            title, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            is_named = title.startswith(_NAMED)
            if int(_stat(pid)[1]) != self._leader or not (is_named or _SPAWNED in arguments):
                return
            if is_named:
                self._names[pid] = title.removeprefix(_NAMED).decode(errors="replace").strip()
            self._pidfds.setdefault(pid, pidfd)
        finally:
            if self._pidfds.get(pid) != pidfd:
                os.close(pidfd)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _how_ended(pid: int) -> str:
    """Describe the end of a process; the kernel knows it until the parent has reaped the process."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = _stat(pid)
        status = os.waitstatus_to_exitcode(int(fields[49]))
        if fields[0] == "Z":
            return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return "ended"


class _ServerState:
    """Knowledge of one server: its process group, subprocesses, all pids seen, and shared memory files seen mapped."""

    def __init__(self, leader: int, born: float) -> None:
        self._leader, self._born = leader, born
        self.subprocesses = _ServerSubprocesses(leader)
        self._pids, self._inodes = {leader}, set[int]()
        self._status: int | None = None

    def scan(self, *, maps: bool = True) -> None:
        """Scan the process group; ``maps`` includes its memory maps, which takes ten times as long."""
        members = _members(self._leader)
        self._pids |= members
        self.subprocesses.scan(members)
        if maps or self._sees_new_files():
            self._inodes |= _mapped(members)

    def _sees_new_files(self) -> bool:
        """Return whether shared memory has a new file that may be this server's."""
        after = max(self._born, time.time() - _NEW_S)
        for path in _SHM.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                if status.st_ctime >= after and status.st_ino not in self._inodes:
                    return True
        return False

    def reap(self) -> bool:
        """Reap dead children; return True while a descendant is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._pids.add(pid)
            if pid == self._leader:
                self._status = os.waitstatus_to_exitcode(status)

    @property
    def server_ended(self) -> bool:
        return self._status is not None

    def signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._leader, number)

    def finish(self) -> int:
        """Kill all remaining descendants, remove the server's files, and return its exit status."""
        while self.reap():
            self.signal(signal.SIGKILL)
            for pid in _children():
                os.kill(pid, signal.SIGKILL)  # a child's pid is not reused until it is reaped
            time.sleep(0.01)
        for path in _SHM.iterdir():
            with contextlib.suppress(OSError):
                is_ours = path.stat().st_ino in self._inodes or self._carries_our_pid(path.name)
                if is_ours and path.stat().st_ctime >= self._born:
                    path.unlink()
        status = 1 if self._status is None else self._status
        return 128 - status if status < 0 else status

    def _carries_our_pid(self, name: str) -> bool:
        match = _NAMED_BY_PID.match(name)
        return match is not None and int(match[1]) in self._pids


def _wake(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wake-up pipe has the signal's number."""


def _write_line(line: str) -> None:
    with contextlib.suppress(OSError):  # the owner may be gone
        os.write(1, f"{line}\n".encode())


def main(grace_s: float, command: list[str]) -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    born = time.time() - 1
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, _wake)
    with tempfile.TemporaryDirectory(prefix="ls-engine-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = folder
        leader = _start(command)
        server = _ServerState(leader, born)
        _write_line(f"{os.getpid()} {leader} {folder}")
        why = _watch(server, woken)
        server.scan()
        if not server.server_ended and not why:
            server.signal(signal.SIGTERM)
            _await_end(server, woken, time.monotonic() + grace_s)
            server.scan()
        status = server.finish()
    _write_line(f"{status} {why}".rstrip())


def _watch(server: _ServerState, woken: int) -> str:
    """Wait until the server has ended or is to be ended; return the reason if one of its subprocesses has ended."""
    maps_due_at = 0.0
    while True:
        ready, _, _ = select.select([0, woken, *server.subprocesses.pidfds], [], [], _SCAN_EVERY_S)
        signals = os.read(woken, 4096) if woken in ready else b""
        server.reap()
        if server.server_ended or 0 in ready or set(signals) - {signal.SIGCHLD}:
            return ""
        if why := server.subprocesses.ended(ready):
            time.sleep(_SETTLES_S)
            server.reap()
            return "" if server.server_ended else why
        if not ready:
            is_due = time.monotonic() >= maps_due_at
            server.scan(maps=is_due)
            maps_due_at = time.monotonic() + _SCAN_MAPS_EVERY_S if is_due else maps_due_at


def _await_end(server: _ServerState, woken: int, stop_at: float) -> None:
    while not server.server_ended and (left_s := stop_at - time.monotonic()) > 0:
        if select.select([woken], [], [], left_s)[0]:
            os.read(woken, 4096)
        server.reap()


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[3:])
