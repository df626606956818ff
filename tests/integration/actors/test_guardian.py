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
    guardian: int
    server: int
    child: int
    stop_fd: int
    told_fd: int

    def end(self) -> str:
        """What the guardian says at its end; empty if it was killed."""
        said = b""
        while chunk := os.read(self.told_fd, 64):
            said += chunk
        os.close(self.told_fd)
        return said.decode().strip()

    def left(self) -> list[str]:
        """Processes that live and shared memory files that are there."""
        pids = [pid for pid in (self.server, self.child) if Path(f"/proc/{pid}").exists()]
        return [str(pid) for pid in pids] + [path.name for path in shared_memory_of(self.server)]


def shared_memory_of(server: int) -> list[Path]:
    return list(Path("/dev/shm").glob(f"*_test_{server}*"))


def start(code: str, stop_pipe: tuple[int, int] | None = None) -> Guarded:
    read_fd, stop_fd = stop_pipe or os.pipe()
    (told_fd, told), (log_fd, log) = os.pipe(), os.pipe()
    subprocess.run(
        [sys.executable, "-I", "-S", guardian_module.__file__, "0.3", "--", sys.executable, "-S", "-c", code],
        stdin=read_fd,
        stdout=told,
        stderr=log,
        start_new_session=True,
        check=True,
    )
    for fd in (read_fd, told, log):
        os.close(fd)
    guardian, server = map(int, os.read(told_fd, 64).split())
    with os.fdopen(log_fd) as lines:
        words = lines.readline().split()
    return Guarded(guardian, server, int(words[1]) if len(words) > 1 else 0, stop_fd, told_fd)


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    guarded = start(SERVER)
    yield guarded
    for path in shared_memory_of(guarded.server):
        path.unlink()


def test_the_owners_death_ends_a_server_that_ignores_sigterm(guarded: Guarded) -> None:
    os.close(guarded.stop_fd)
    assert guarded.end() == str(128 + signal.SIGKILL)
    assert guarded.left() == []


def test_a_stop_byte_ends_it(guarded: Guarded) -> None:
    os.write(guarded.stop_fd, b"x")
    guarded.end()
    os.close(guarded.stop_fd)
    assert guarded.left() == []


def test_sigterm_to_the_guardian_ends_it(guarded: Guarded) -> None:
    os.kill(guarded.guardian, signal.SIGTERM)
    guarded.end()
    os.close(guarded.stop_fd)
    assert guarded.left() == []


def test_the_servers_death_ends_its_children_and_is_told(guarded: Guarded) -> None:
    os.kill(guarded.server, signal.SIGKILL)
    assert guarded.end() == str(128 + signal.SIGKILL)
    os.close(guarded.stop_fd)
    assert not Path(f"/proc/{guarded.child}").exists()


def test_the_guardians_death_ends_the_server_and_is_told(guarded: Guarded) -> None:
    pidfd = os.pidfd_open(guarded.server)
    os.kill(guarded.guardian, signal.SIGKILL)
    ended, _, _ = select.select([pidfd], [], [], 30)
    assert ended
    assert guarded.end() == ""
    os.close(pidfd)
    os.close(guarded.stop_fd)
    os.killpg(guarded.server, signal.SIGKILL)  # as the owner does when the guardian was killed


def test_the_guardian_is_no_child_of_its_owner(guarded: Guarded) -> None:
    parent = Path(f"/proc/{guarded.guardian}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) != os.getpid()
    os.close(guarded.stop_fd)
    guarded.end()


def test_an_owner_that_dies_before_the_server_runs_leaves_none() -> None:
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"x")
    guarded = start("import time; time.sleep(600)", (read_fd, write_fd))
    guarded.end()
    os.close(write_fd)
    assert not Path(f"/proc/{guarded.server}").exists()


def test_the_servers_exit_status_is_told() -> None:
    guarded = start("import sys; sys.exit(7)")
    assert guarded.end() == "7"
    os.close(guarded.stop_fd)
