"""Ends every process of a run when its driver is gone, however the driver ended.

The driver starts this small process (standard library only, in its own session) and holds the write end of a pipe.
When the pipe closes, because the driver ended or was killed, every process of the run is killed, round after round
until none is left, and the run's temporary folder is removed.  A process belongs to the run if its environment has the
run's token, or if such a process started it.  Some Ray processes overwrite their environment with a title, so the
reaper searches regularly and remembers what it found.  The token is random, so that no other process can be hit.
Containers are not among these processes: they end at their own deadline, and those that a killed run had created but
not started are swept.  The driver starts another reaper in place of one that was killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

RUN_TOKEN_VARIABLE = "LONGSHORE_RUN_TOKEN"  # noqa: S105  # the name of a variable
_DONE, _STOPPED = b"d", b"s"
"""Last byte of a driver that ended; a killed driver writes none."""
_SEARCH_S = 2.0
"""Seconds between two searches for processes during the run."""
_ROUND_S = 0.2
_ROUNDS = 300
_QUIET_ROUNDS = 2
"""Searches without a process before the run counts as ended: a process that is being started has no environment."""
_CLEANUP_ROUNDS = {
    b"/actors/engines/server/process_reaper.py": 100,
    b"/launch/processes/process_reaper.py": 250,
    b"\0sandbox.host\0clean\0": 250,
}
"""Part of a command line → rounds that such a process is spared to clean up: the reaper of an engine removes the shared
memory of its dead server; the reaper of a run that this one started (:mod:`launch.sweep`) ends processes that this one
does not know, and its clean-up waits until the Docker engine has settled."""
_REMOTE = "--remote"
_EMPTY_ROUNDS = 10
"""Searches in a row without a process of the run, once nothing holds the pipe: a dead actor is restarted by then."""
_LEAVING_ROUNDS = 60
"""Searches after the run has ended in order, while Ray ends its own processes."""


def host_token(token: str, machine: str) -> str:
    """Return the token of the run's processes on another machine than the driver's."""
    return f"{token}-{machine}"


class ProcessReaper:
    """The driver's side.  Entering sets the token in ``os.environ``, so that every process started later has it;
    leaving waits until all of them are gone.  In between a thread replaces a reaper that is killed."""

    def __init__(self, token: str, temporary: Path, cleanup: Sequence[str] = (), *, watched_pid: int = 0) -> None:
        """``cleanup`` is a command (``longshore host clean``) that runs at the end unless all went well.  On another
        host than the driver's, the end of the process ``watched_pid`` is the end of the run."""
        self._token, self._temporary, self._cleanup = token, temporary, cleanup
        self._remote_options = (_REMOTE, str(watched_pid)) if watched_pid else ()

    def __enter__(self) -> Self:
        self._environment = {key: value for key, value in os.environ.items() if key != RUN_TOKEN_VARIABLE}
        self._start()
        os.environ[RUN_TOKEN_VARIABLE] = self._token
        self._leaving = os.eventfd(0)
        self._watch = threading.Thread(target=self._replace_killed, name="watch-process-reaper", daemon=True)
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.eventfd_write(self._leaving, 1)
        self._watch.join()
        os.close(self._leaving)
        del os.environ[RUN_TOKEN_VARIABLE]
        while not self._is_cleaned_up(_DONE if error is None else _STOPPED) and self._restart():
            pass

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-S",
                "-E",
                __file__,
                *self._remote_options,
                self._token,
                str(self._temporary),
                *self._cleanup,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env=self._environment,
        )
        assert self._process.stdin is not None  # noqa: S101  # opened above
        self._pipe = self._process.stdin

    def _is_cleaned_up(self, last: bytes) -> bool:
        """End the run; return False if the reaper was killed before it had ended the processes."""
        with contextlib.suppress(BrokenPipeError):  # the reaper was killed
            self._pipe.write(last)
            self._pipe.close()
        return self._process.wait() >= 0

    def _replace_killed(self) -> None:
        """Start another reaper whenever one is killed, until the block is left."""
        while True:
            poll = select.poll()
            poll.register(self._pipe, 0)  # it fails once nobody holds the other end
            poll.register(self._leaving, select.POLLIN)
            if self._leaving in dict(poll.poll()) or not self._restart():
                return

    def _restart(self) -> bool:
        """Start another reaper in place of one that ended, and say so; return whether it could be started."""
        from protocol.cli.output import error_console  # the reaper itself has the standard library only

        broken, code = self._pipe, self._process.wait()
        problem = f"it ended with exit code {code}" if code > 0 else ""
        if not problem:
            try:
                self._start()
            except OSError as error:
                problem = str(error)
        with contextlib.suppress(OSError):  # standard error's disk may be full
            error_console().print(
                f"warning: the process reaper ended and cannot be replaced ({problem}): if this process is killed, the "
                "processes that it started stay"
                if problem
                else "remark: the process reaper was killed; another one has taken its place"
            )
        if not problem:
            broken.close()
        return not problem

    @property
    def pid(self) -> int:
        """Process id of the reaper, while the block runs."""
        return self._process.pid


class RunProcess(NamedTuple):
    """A process; ``started``, in clock ticks since boot, distinguishes it from a later one with the same id."""

    pid: int
    started: int


def find_run_processes(token: str, known: AbstractSet[RunProcess] = frozenset()) -> set[RunProcess]:
    """Return the living processes among ``known``, those whose environment has ``token``, and all their descendants;
    without this process."""
    needle = f"{RUN_TOKEN_VARIABLE}={token}".encode()
    parents: dict[RunProcess, int] = {}
    found: set[RunProcess] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            state, parent, *fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if state == "Z":
                continue
            process = RunProcess(int(entry.name), int(fields[17]))
            parents[process] = int(parent)
            if process in known or needle in (entry / "environ").read_bytes().split(b"\0"):
                found.add(process)
    new = found
    while new:
        pids = {process.pid for process in new}
        new = {process for process, parent in parents.items() if parent in pids} - found
        found |= new
    return found


def _wait_driver_end(token: str) -> tuple[bytes, set[RunProcess]]:
    """Wait for the driver's end; return its last byte and the processes of its run."""
    known: set[RunProcess] = set()
    last = b""
    while True:
        known = find_run_processes(token, known)  # at once: an earlier reaper may have been killed
        if not select.select([0], [], [], _SEARCH_S)[0]:
            continue
        if byte := os.read(0, 1):
            last = byte
        else:
            return last, known


def _wait_host_end(token: str, is_over: Callable[[], bool]) -> tuple[bytes, set[RunProcess]]:
    """Like :func:`_wait_driver_end` on another machine, where an actor holds the pipe; ``is_over`` tells that the
    machine's Ray has ended."""
    known: set[RunProcess] = set()
    last, held, empty_rounds, rounds_left = b"", True, 0, _LEAVING_ROUNDS
    while empty_rounds < _EMPTY_ROUNDS and rounds_left and not is_over():
        if not held:
            time.sleep(_SEARCH_S)
        elif select.select([0], [], [], _SEARCH_S)[0]:
            byte = os.read(0, 1)
            last, held = byte or last, bool(byte)
        known = find_run_processes(token, known)
        empty_rounds = empty_rounds + 1 if not (known or held) else 0
        rounds_left -= not held and last == _DONE
    return last, known


def _has_ended(pid: int) -> Callable[[], bool]:
    """Return a function that tells whether a process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return lambda: True
    return lambda: bool(select.select([handle], [], [], 0)[0])


def _kill_run_processes(token: str, known: set[RunProcess], temporary: Path) -> None:
    empty_rounds = 0
    for done in range(_ROUNDS):
        known = find_run_processes(token, known)
        empty_rounds = 0 if known else empty_rounds + 1
        if empty_rounds == _QUIET_ROUNDS:
            break
        for pid, _ in known:
            with contextlib.suppress(OSError):
                if done >= _grace_rounds(Path(f"/proc/{pid}/cmdline").read_bytes()):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_ROUND_S)
    shutil.rmtree(temporary, ignore_errors=True)


def _grace_rounds(command: bytes) -> int:
    """Return the number of rounds that a process is spared."""
    return max((rounds for part, rounds in _CLEANUP_ROUNDS.items() if part in command), default=0)


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    words = sys.argv[1:]
    watched_pid = int(words[1]) if words[0] == _REMOTE else 0
    if watched_pid and os.fork():
        return  # the child is adopted by init: Ray kills the children of an actor that ends
    token, temporary, *cleanup = words[2:] if watched_pid else words
    last, known = _wait_host_end(token, _has_ended(watched_pid)) if watched_pid else _wait_driver_end(token)
    _kill_run_processes(token, known, Path(temporary))
    if cleanup and last != _DONE:
        settle = () if last == _STOPPED else ("--settle",)
        none = subprocess.DEVNULL
        subprocess.run((*cleanup, *settle), stdin=none, stdout=none, stderr=none, check=False)


if __name__ == "__main__":
    main()
