"""Leaves nothing behind: ends every process of a run when its driver is gone, however it went.

The driver starts this small process (standard library only, its own session) and keeps the write end of a pipe.  When
the pipe closes, because the driver ended or was killed, every process of the run is killed, round after round until
none is left, and the run's temporary folder is removed.  A process is the run's if its environment carries the run's
token, or if one of those started it: some of Ray's write their title over their environment, so the guardian looks now
and then and remembers what it saw.  The token is random, so that nothing foreign can be hit.  Containers are no
processes of ours: they end by their own deadline, and what a killed run had created and not started yet is swept.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

RUN_TOKEN_VARIABLE = "LONGSHORE_RUN_TOKEN"  # noqa: S105  # the name of a variable
_DONE, _STOPPED = b"d", b"s"
"""A driver's last word; one that was killed says nothing."""
_LOOK_S = 2.0
"""Between two looks at the processes of a run that goes on."""
_ROUND_S = 0.2
_ROUNDS = 300
_QUIET_ROUNDS = 2
"""A process has no environment for a moment while it is started: one look may miss it."""
_PATIENT_ROUNDS = {
    b"/actors/engines/server/process_reaper.py": 100,
    b"/launch/processes/process_reaper.py": 250,
    b"\0sandbox.pool.sweep\0": 250,
}
"""So long those may go on who are putting things in order, told by a part of their command line: an engine's guardian,
whose server is dead by then, removes the server's shared memory; the guardian of a run that was started by this one
(:mod:`launch.sweep`) ends what this one cannot know, and its sweep waits until the daemon has settled."""
_BESIDE = "--beside"
_ALONE_ROUNDS = 10
"""Looks in a row that find no process of the run, once nobody holds the pipe: an actor that died is back by then."""
_LEAVING_ROUNDS = 60
"""Looks after the word that the run is over: Ray ends its processes by itself."""


def host_token(token: str, machine: str) -> str:
    """Of a run's processes on another machine than the driver's."""
    return f"{token}-{machine}"


class ProcessReaper:
    """The driver's side.  Entering sets the token in ``os.environ``, so that every process started later carries it;
    leaving waits until all of them are gone."""

    def __init__(self, token: str, temporary: Path, sweep: Sequence[str] = (), *, watched_pid: int = 0) -> None:
        """``sweep`` is a command (:mod:`sandbox.pool.sweep`) that runs at the end unless all went well.  On another
        host than the driver's, the end of the process ``watched_pid`` is the end of the run."""
        self._token, self._temporary, self._sweep = token, temporary, sweep
        self._beside = (_BESIDE, str(watched_pid)) if watched_pid else ()

    def __enter__(self) -> Self:
        environment = {key: value for key, value in os.environ.items() if key != RUN_TOKEN_VARIABLE}
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__, *self._beside, self._token, str(self._temporary), *self._sweep],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
        os.environ[RUN_TOKEN_VARIABLE] = self._token
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del os.environ[RUN_TOKEN_VARIABLE]
        assert self._process.stdin is not None  # noqa: S101  # opened above
        with contextlib.suppress(BrokenPipeError):  # somebody killed it
            self._process.stdin.write(_DONE if error is None else _STOPPED)
            self._process.stdin.close()
        self._process.wait()


class RunProcess(NamedTuple):
    """``started``: clock ticks since boot, by which a number that is given out again is told apart."""

    pid: int
    started: int


def find_run_processes(token: str, known: AbstractSet[RunProcess] = frozenset()) -> set[RunProcess]:
    """Those of ``known`` that live, those whose environment carries ``token``, and what any of them started; not this
    one."""
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
    """What the driver said last, and the processes that its run had by then."""
    known: set[RunProcess] = set()
    last = b""
    while True:
        if not select.select([0], [], [], _LOOK_S)[0]:
            known = find_run_processes(token, known)
        elif said := os.read(0, 1):
            last = said
        else:
            return last, known


def _wait_host_end(token: str, is_over: Callable[[], bool]) -> tuple[bytes, set[RunProcess]]:
    """The same where an actor holds the pipe: ``is_over`` says that its machine's Ray has ended."""
    known: set[RunProcess] = set()
    last, held, alone, left = b"", True, 0, _LEAVING_ROUNDS
    while alone < _ALONE_ROUNDS and left and not is_over():
        if not held:
            time.sleep(_LOOK_S)
        elif select.select([0], [], [], _LOOK_S)[0]:
            said = os.read(0, 1)
            last, held = said or last, bool(said)
        known = find_run_processes(token, known)
        alone = alone + 1 if not (known or held) else 0
        left -= not held and last == _DONE
    return last, known


def _has_ended(pid: int) -> Callable[[], bool]:
    """Tells whether the process that has this number is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return lambda: True
    return lambda: bool(select.select([handle], [], [], 0)[0])


def _kill_run_processes(token: str, known: set[RunProcess], temporary: Path) -> None:
    quiet = 0
    for done in range(_ROUNDS):
        known = find_run_processes(token, known)
        quiet = 0 if known else quiet + 1
        if quiet == _QUIET_ROUNDS:
            break
        for pid, _ in known:
            with contextlib.suppress(OSError):
                if done >= _grace_rounds(Path(f"/proc/{pid}/cmdline").read_bytes()):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_ROUND_S)
    shutil.rmtree(temporary, ignore_errors=True)


def _grace_rounds(command: bytes) -> int:
    """Rounds that a process may go on."""
    return max((rounds for part, rounds in _PATIENT_ROUNDS.items() if part in command), default=0)


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    words = sys.argv[1:]
    beside = int(words[1]) if words[0] == _BESIDE else 0
    if beside and os.fork():
        return  # nobody's child: Ray kills those of an actor that ends
    token, temporary, *sweep = words[2:] if beside else words
    last, known = _wait_host_end(token, _has_ended(beside)) if beside else _wait_driver_end(token)
    _kill_run_processes(token, known, Path(temporary))
    if sweep and last != _DONE:
        longer = () if last == _STOPPED else ("--settle",)
        none = subprocess.DEVNULL
        subprocess.run((*sweep, *longer), stdin=none, stdout=none, stderr=none, check=False)


if __name__ == "__main__":
    main()
