"""Sees to it that a server's processes never outlive their owner, and that the owner hears of the server's death.

Run by path, standard library only, so that it stands within milliseconds:
``python -I -S guardian.py GRACE_S -- COMMAND…``.  Standard input is a pipe whose write end the owner keeps; standard
output is a pipe that gets two lines, ``<guardian's pid> <server's pid>`` and at the end the server's exit status, and
whose end of file is the guardian's death; standard error is the server's log.

- The process that is started returns at once; the guardian is its child and nobody else's, because Ray kills the
  children of an actor that ends before they could clean up.  It leads a session; the server leads a group in it.
- The owner's death (end of file), a byte on the pipe, or SIGTERM ends the group: SIGTERM, then SIGKILL after the grace.
- The server's death ends the rest of its group at once.  The guardian's own death kills the server (PDEATHSIG).
- As child subreaper it inherits every descendant, and it exits only when none is left.
- Files in /dev/shm that were made in its time and mapped by the group, or that carry one of its pids, are removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import sys
import time
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_EVERY_S = 5.0
_SHM = Path("/dev/shm")  # noqa: S108  # the system's shared memory, where servers leave files
_NAMED_BY_PID = re.compile(r"^(?:sgl|sglang|torch|psm)[A-Za-z_]*_(\d+)(?:_|$)")


def _start(command: list[str]) -> int:
    """Fork and run ``command`` as the leader of a process group; give its pid."""
    guardian = os.getpid()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guardian:
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
    """Pids of the live processes of a process group."""
    found: set[int] = set()
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group:
                found.add(pid)
    return found


def _mapped(pids: set[int]) -> set[int]:
    """Inodes of the files in /dev/shm that the processes have mapped; a semaphore is mapped under another name."""
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
            found |= {int(line.split(maxsplit=5)[4]) for line in lines if f" {_SHM}/" in line}
    return found


class _Guard:
    """What is known of one server: its group, every pid seen in it and every shared memory file seen mapped by it."""

    def __init__(self, leader: int, born: float) -> None:
        self._leader, self._born = leader, born
        self._pids, self._inodes = {leader}, set[int]()
        self._status: int | None = None

    def look(self) -> None:
        members = _members(self._leader)
        self._pids |= members
        self._inodes |= _mapped(members)

    def reap(self) -> bool:
        """Collect the dead; True while a descendant is left."""
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
        """Kill what is left of the group, remove its files, and give the server's exit status."""
        while self.reap():
            self.signal(signal.SIGKILL)
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
    """The signal's number stands in the wake-up pipe; nothing else is to be done."""


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # the owner may be gone
        os.write(1, f"{line}\n".encode())


def main(grace_s: float, command: list[str]) -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    born = time.time() - 1
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, _wake)
    leader = _start(command)
    guard = _Guard(leader, born)
    _tell(f"{os.getpid()} {leader}")
    stop_at: float | None = None
    while not guard.server_ended and (stop_at is None or time.monotonic() < stop_at):
        wait_s = _LOOK_EVERY_S if stop_at is None else max(0.0, stop_at - time.monotonic())
        ready, _, _ = select.select([woken] if stop_at is not None else [0, woken], [], [], wait_s)
        signals = os.read(woken, 4096) if woken in ready else b""
        guard.reap()
        if guard.server_ended:
            break
        if stop_at is None and (0 in ready or set(signals) - {signal.SIGCHLD}):
            guard.look()
            guard.signal(signal.SIGTERM)
            stop_at = time.monotonic() + grace_s
        elif not ready:
            guard.look()
    guard.look()
    _tell(str(guard.finish()))


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[3:])
