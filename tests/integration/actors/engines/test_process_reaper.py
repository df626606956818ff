"""The reaper with plain processes: whoever dies first, no process and no shared memory of the server is left, and
whoever asks the server does not wait for what is dead."""

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from actors.engines.server import process_reaper

SHARED_MEMORY = """
import mmap, os
mapped = open(f"/dev/shm/longshore_test_{os.getpid()}", "w+b")
mapped.truncate(4096)
view = mmap.mmap(mapped.fileno(), 4096)
open(f"/dev/shm/sgl_shm_mq_{os.getpid()}_ab12cd34", "w").close()
"""

SERVER = f"""
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-S", "-c", deaf])
{SHARED_MEMORY}
open(os.path.join(os.environ["TMPDIR"], "socket"), "w").close()
print("ready", child.pid, file=sys.stderr, flush=True)
signal.pause()
"""

APART = SERVER.replace("deaf])", "deaf], start_new_session=True)")
"""With a child in a session of its own."""

PARTS = f"""
import multiprocessing, signal, subprocess, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
gives_up = ["-S", "-c", "import signal, sys; signal.sigwait([signal.SIGTERM]); sys.exit(3)"]
helper = subprocess.Popen(["helper", *gives_up], executable=sys.executable)
forks = "import os, sys; print(os.spawnv(os.P_NOWAIT, sys.executable, ['sglang::scheduler', *sys.argv[1:]]))"
part = subprocess.Popen([sys.executable, "-S", "-c", forks, *gives_up], stdout=subprocess.PIPE)
forked = int(part.stdout.readline())
named = subprocess.Popen(["sglang::detokenizer", *gives_up], executable=sys.executable)
spawned = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
spawned.start()
{SHARED_MEMORY}
print("ready", helper.pid, named.pid, spawned.pid, forked, file=sys.stderr, flush=True)
signal.pause()
"""


@dataclass
class ServerWithReaper:
    reaper: int
    server: int
    folder: Path
    children: list[int]
    stop_fd: int
    report_fd: int

    def end(self) -> str:
        """Return the reaper's output at its end; empty if it was killed."""
        output = b""
        while chunk := os.read(self.report_fd, 64):
            output += chunk
        os.close(self.report_fd)
        return output.decode().strip()

    def leftovers(self) -> list[str]:
        """Processes that live and shared memory files that are there."""
        pids = [pid for pid in (self.server, *self.children) if Path(f"/proc/{pid}").exists()]
        return [str(pid) for pid in pids] + [path.name for path in shared_memory_of(self.server)]

    def wait_for_watch(self, pid: int) -> None:
        """Until the reaper sleeps with a part of the server watched; for a moment it holds all that it inspects."""
        while not (self._holds(pid) and self._sleeps() and self._holds(pid)):
            time.sleep(0.01)

    def _sleeps(self) -> bool:
        return Path(f"/proc/{self.reaper}/stat").read_text().rpartition(")")[2].split()[0] == "S"

    def _holds(self, pid: int) -> bool:
        return f"Pid:\t{pid}\n" in "".join(map(_read, Path(f"/proc/{self.reaper}/fdinfo").iterdir()))


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def shared_memory_of(server: int) -> list[Path]:
    return list(Path("/dev/shm").glob(f"*_{server}*"))


def start(code: str, stop_pipe: tuple[int, int] | None = None) -> ServerWithReaper:
    read_fd, stop_fd = stop_pipe or os.pipe()
    (pids_fd, pids_pipe), (log_fd, log) = os.pipe(), os.pipe()
    subprocess.run(
        [sys.executable, "-I", "-S", process_reaper.__file__, "0.3", "--", sys.executable, "-S", "-c", code],
        stdin=read_fd,
        stdout=pids_pipe,
        stderr=log,
        start_new_session=True,
        umask=0,
        check=True,
    )
    for fd in (read_fd, pids_pipe, log):
        os.close(fd)
    pids = b""
    while not pids.endswith(b"\n"):  # the next line may follow at once
        pids += os.read(pids_fd, 1)
    reaper, server, folder = pids.split()
    with os.fdopen(log_fd) as lines:
        words = lines.readline().split()
    return ServerWithReaper(
        int(reaper), int(server), Path(os.fsdecode(folder)), [int(word) for word in words[1:]], stop_fd, pids_fd
    )


@pytest.fixture
def guarded() -> Iterator[ServerWithReaper]:
    guarded = start(SERVER)
    yield guarded
    for path in shared_memory_of(guarded.server):
        path.unlink()


def test_the_owners_death_ends_a_server_that_ignores_sigterm(guarded: ServerWithReaper) -> None:
    os.close(guarded.stop_fd)
    assert guarded.end() == str(128 + signal.SIGKILL)
    assert guarded.leftovers() == []


def test_only_its_account_reaches_its_temporary_files_which_end_with_it(guarded: ServerWithReaper) -> None:
    assert [stat.S_IMODE(path.stat().st_mode) for path in (guarded.folder, guarded.folder / "socket")] == [0o700, 0o600]
    os.close(guarded.stop_fd)
    guarded.end()
    assert not guarded.folder.exists()


def test_a_stop_byte_ends_it(guarded: ServerWithReaper) -> None:
    os.write(guarded.stop_fd, b"x")
    guarded.end()
    os.close(guarded.stop_fd)
    assert guarded.leftovers() == []


def test_sigterm_to_the_reaper_ends_it(guarded: ServerWithReaper) -> None:
    os.kill(guarded.reaper, signal.SIGTERM)
    guarded.end()
    os.close(guarded.stop_fd)
    assert guarded.leftovers() == []


def test_the_servers_death_ends_its_children_and_is_reported(guarded: ServerWithReaper) -> None:
    os.kill(guarded.server, signal.SIGKILL)
    assert guarded.end() == str(128 + signal.SIGKILL)
    os.close(guarded.stop_fd)
    unseen = f"longshore_test_{guarded.server}"  # its maps died with it, perhaps before they were looked at
    assert set(guarded.leftovers()) <= {unseen}


def test_a_child_in_a_session_of_its_own_ends_with_the_server() -> None:
    guarded = start(APART)
    (child,) = guarded.children
    assert os.getsid(child) == child
    os.write(guarded.stop_fd, b"x")
    guarded.end()
    os.close(guarded.stop_fd)
    assert guarded.leftovers() == []


@pytest.mark.parametrize(("part", "name"), [(1, "detokenizer"), (2, "subprocess")], ids=["named", "not yet named"])
def test_a_killed_subprocess_ends_the_server_and_is_reported(part: int, name: str) -> None:
    """SGLang takes a minute to notice; requests would hang as long."""
    guarded = start(PARTS)
    guarded.wait_for_watch(guarded.children[part])
    os.kill(guarded.children[part], signal.SIGKILL)
    assert guarded.end() == f"{128 + signal.SIGKILL} its {name} was killed by SIGKILL"
    os.close(guarded.stop_fd)
    assert guarded.leftovers() == []


def test_a_subprocess_that_exits_with_an_error_ends_the_server_too() -> None:
    guarded = start(PARTS)
    guarded.wait_for_watch(guarded.children[1])
    os.kill(guarded.children[1], signal.SIGTERM)
    assert guarded.end() == f"{128 + signal.SIGKILL} its detokenizer ended with status 3"
    os.close(guarded.stop_fd)
    assert guarded.leftovers() == []


@pytest.mark.parametrize("helper", [0, 3], ids=["a helper", "what a part has forked"])
def test_the_death_of_a_helper_process_does_not_end_the_server(helper: int) -> None:
    guarded = start(PARTS)
    guarded.wait_for_watch(guarded.children[1])
    gone = os.pidfd_open(guarded.children[helper])
    os.kill(guarded.children[helper], signal.SIGKILL)
    assert select.select([gone], [], [], 30)[0]
    os.close(gone)
    os.kill(guarded.children[1], signal.SIGKILL)
    assert guarded.end() == f"{128 + signal.SIGKILL} its detokenizer was killed by SIGKILL"
    os.close(guarded.stop_fd)


def test_the_reapers_death_ends_the_server_and_is_reported(guarded: ServerWithReaper) -> None:
    pidfd = os.pidfd_open(guarded.server)
    os.kill(guarded.reaper, signal.SIGKILL)
    ended, _, _ = select.select([pidfd], [], [], 30)
    assert ended
    assert guarded.end() == ""
    os.close(pidfd)
    os.close(guarded.stop_fd)
    os.killpg(guarded.server, signal.SIGKILL)  # as the owner does when the reaper was killed
    shutil.rmtree(guarded.folder)


def test_the_reaper_is_no_child_of_its_owner(guarded: ServerWithReaper) -> None:
    parent = Path(f"/proc/{guarded.reaper}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) != os.getpid()
    os.close(guarded.stop_fd)
    guarded.end()


def test_an_owner_that_dies_before_the_server_starts_leaves_no_server() -> None:
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"x")
    guarded = start("import time; time.sleep(600)", (read_fd, write_fd))
    guarded.end()
    os.close(write_fd)
    assert not Path(f"/proc/{guarded.server}").exists()


def test_the_servers_exit_status_is_reported() -> None:
    guarded = start("import sys; sys.exit(7)")
    assert guarded.end() == "7"
    os.close(guarded.stop_fd)
