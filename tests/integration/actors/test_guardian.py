"""The guardian with plain processes: whoever dies first, no process and no shared memory of the server is left."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from actors.engines import guardian as guardian_module

SERVER = """
import mmap, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-S", "-c", deaf])
mapped = open(f"/dev/shm/longshore_test_{os.getpid()}", "w+b")
mapped.truncate(4096)
view = mmap.mmap(mapped.fileno(), 4096)
open(f"/dev/shm/sgl_test_{os.getpid()}_x", "w").close()
print("ready", child.pid, file=sys.stderr, flush=True)
signal.pause()
"""


@dataclass
class Guarded:
    guardian: subprocess.Popen[bytes]
    server: int
    child: int
    stop_fd: int

    def left(self) -> list[str]:
        """Processes that live and shared memory files that are there."""
        pids = [pid for pid in (self.server, self.child) if Path(f"/proc/{pid}").exists()]
        return [str(pid) for pid in pids] + [path.name for path in Path("/dev/shm").glob(f"*_{self.server}*")]


def start(code: str, stop_fd_of: tuple[int, int] | None = None) -> Guarded:
    read_fd, write_fd = stop_fd_of or os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", guardian_module.__file__, "0.3", "--", sys.executable, "-S", "-c", code],
        stdin=read_fd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(read_fd)
    assert process.stdout
    assert process.stderr
    with process.stdout, process.stderr:
        server = int(process.stdout.readline())
        line = process.stderr.readline().split()
    return Guarded(process, server, int(line[1]) if len(line) > 1 else 0, write_fd)


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    guarded = start(SERVER)
    yield guarded
    guarded.guardian.kill()
    guarded.guardian.wait()


def test_the_owners_death_ends_a_server_that_ignores_sigterm(guarded: Guarded) -> None:
    os.close(guarded.stop_fd)
    assert guarded.guardian.wait(30) == 128 + signal.SIGKILL
    assert guarded.left() == []


def test_a_stop_byte_ends_it(guarded: Guarded) -> None:
    os.write(guarded.stop_fd, b"x")
    guarded.guardian.wait(30)
    os.close(guarded.stop_fd)
    assert guarded.left() == []


def test_sigterm_to_the_guardian_ends_it(guarded: Guarded) -> None:
    guarded.guardian.terminate()
    guarded.guardian.wait(30)
    os.close(guarded.stop_fd)
    assert guarded.left() == []


def test_the_servers_death_ends_its_children_and_is_told(guarded: Guarded) -> None:
    os.kill(guarded.server, signal.SIGKILL)
    assert guarded.guardian.wait(30) == 128 + signal.SIGKILL
    os.close(guarded.stop_fd)
    assert not Path(f"/proc/{guarded.child}").exists()


def test_the_guardians_death_ends_the_server(guarded: Guarded) -> None:
    pidfd = os.pidfd_open(guarded.server)
    guarded.guardian.kill()
    ready, _, _ = select.select([pidfd], [], [], 30)
    os.close(pidfd)
    os.close(guarded.stop_fd)
    os.killpg(guarded.server, signal.SIGKILL)  # as the owner does when the guardian was killed
    assert ready


def test_an_owner_that_dies_before_the_server_runs_leaves_none() -> None:
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"x")
    guarded = start("import sys, time; print('up', file=sys.stderr, flush=True); time.sleep(600)", (read_fd, write_fd))
    os.close(write_fd)
    guarded.guardian.wait(30)
    assert not Path(f"/proc/{guarded.server}").exists()


def test_the_servers_exit_status_is_the_guardians() -> None:
    guarded = start("import sys; print('up', file=sys.stderr, flush=True); sys.exit(7)")
    assert guarded.guardian.wait(30) == 7
    os.close(guarded.stop_fd)
