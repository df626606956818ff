"""If this fails, a killed run leaves processes behind that hold ports, memory and GPUs."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.processes.process_reaper import find_run_processes
from tests.support.runs.cluster_runs import eventually

OWNER = """
import subprocess, sys, time
from pathlib import Path
from launch.processes.process_reaper import ProcessReaper
token, folder, how, *cleanup = sys.argv[1:]
with ProcessReaper(token, Path(folder), cleanup):
    for _ in range(3):
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True, stdout=subprocess.DEVNULL)
    print("ready", flush=True)
    if how == "waits":
        time.sleep(600)
    if how == "fails":
        raise RuntimeError
"""


def gone(token: str) -> bool:
    """Wait, generously, until nothing carries the token."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        if not find_run_processes(token):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("how", ["waits", "leaves"])
def test_everything_a_driver_started_ends_with_it_whether_killed_or_done(tmp_path: Path, how: str) -> None:
    token, folder = f"test-{secrets.token_hex(8)}", tmp_path / "temporary"
    folder.mkdir()
    owner = subprocess.Popen([sys.executable, "-c", OWNER, token, str(folder), how], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"ready\n"
    if how == "waits":
        eventually("the environment of all three", lambda: len(find_run_processes(token)) == 3, 60)
        owner.kill()
    owner.wait()
    owner.stdout.close()
    assert gone(token)
    give_up = time.monotonic() + 60
    while folder.exists() and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("how", "swept"), [("waits", "--settle\n"), ("fails", "\n"), ("leaves", None)], ids=["killed", "stopped", "done"]
)
def test_the_clean_up_command_runs_unless_the_run_succeeded(tmp_path: Path, how: str, swept: str | None) -> None:
    token, folder, note = f"test-{secrets.token_hex(8)}", tmp_path / "temporary", tmp_path / "swept"
    folder.mkdir()
    cleanup = ["/bin/sh", "-c", f'echo "$@" > {note}', "cleanup"]
    command = [sys.executable, "-c", OWNER, token, str(folder), how, *cleanup]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"ready\n"
    if how == "waits":
        owner.kill()
    owner.wait()
    owner.stdout.close()
    assert gone(token)
    give_up = time.monotonic() + 60
    while (folder.exists() or (swept and not note.exists())) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert (note.read_text() if note.exists() else None) == swept


OUTER = """
import subprocess, sys, time
from pathlib import Path
from launch.processes.process_reaper import ProcessReaper
token, folder, *run = sys.argv[1:]
with ProcessReaper(token, Path(folder)):
    subprocess.Popen(run, start_new_session=True)
    time.sleep(600)
"""


def test_a_run_started_by_another_command_is_cleaned_up_by_the_reaper_of_the_run(tmp_path: Path) -> None:
    """A clean-up that is killed would leave what its run's reaper alone knows of."""
    outer, inner, note = f"test-{secrets.token_hex(8)}", f"test-{secrets.token_hex(8)}", tmp_path / "swept"
    for name in ("outer", "inner"):
        (tmp_path / name).mkdir()
    cleanup = ["/bin/sh", "-c", f'sleep 1; echo "$@" > {note}', "sandbox.host", "clean"]
    arguments = [inner, str(tmp_path / "inner"), "waits", *cleanup]
    run = tmp_path / "run.py"
    run.write_text(f"import sys\nsys.path.insert(0, {str(Path.cwd())!r})\nsys.argv[1:] = {arguments!r}\n{OWNER}")
    command = [sys.executable, "-c", OUTER, outer, str(tmp_path / "outer"), sys.executable, str(run)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"ready\n"
    eventually("the run, its processes and its reaper", lambda: len(find_run_processes(outer)) >= 5, 60)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    eventually("the run's clean-up", note.exists, 60)
    assert gone(inner)
    assert gone(outer)
    eventually("the end of both folders", lambda: not list(tmp_path.glob("*er")), 60)


MACHINE = """
import os, subprocess, sys, time
token, folder, *cleanup = sys.argv[1:]
actor = (
    "import os, subprocess, sys, time\\n"
    "from pathlib import Path\\n"
    "from launch.processes.process_reaper import ProcessReaper\\n"
    "reaper = ProcessReaper(sys.argv[1], Path(sys.argv[2]), sys.argv[3:], watched_pid=os.getppid())\\n"
    "reaper.__enter__()\\n"
    "print(os.getpid(), flush=True)\\n"
    "time.sleep(600)\\n"
)
environment = os.environ | {"LONGSHORE_RUN_TOKEN": token}
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environment, start_new_session=True)
subprocess.Popen([sys.executable, "-c", actor, token, folder, *cleanup], env=environment)
time.sleep(600)
"""
"""A machine's Ray, which has started a process of the run and the actor that holds the reaper's pipe."""


@pytest.mark.parametrize("actor_first", [False, True], ids=["actor alive", "actor killed before"])
def test_another_machine_keeps_nothing_of_the_run_after_its_ray_ends(tmp_path: Path, actor_first: bool) -> None:
    """Also where the actor that held the pipe died before: Ray starts another one then, and nothing ends for it."""
    token, folder, note = f"test-{secrets.token_hex(8)}", tmp_path / "scratch", tmp_path / "swept"
    folder.mkdir()
    command = [sys.executable, "-c", MACHINE, token, str(folder), "/bin/sh", "-c", f'echo "$@" > {note}', "cleanup"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as machine:
        assert machine.stdout is not None
        actor = int(machine.stdout.readline())
        if actor_first:
            os.kill(actor, signal.SIGKILL)
            eventually("its end", lambda: actor not in {each.pid for each in find_run_processes(token)}, 60)
            assert find_run_processes(token), "the run's other processes were ended for one actor"
        machine.kill()
    assert gone(token)
    eventually("the clean-up, and the end of its folder", lambda: note.exists() and not folder.exists(), 60)
    eventually("the word that workers died just now", lambda: note.read_text() == "--settle\n", 60)


HIDING = """
import os, subprocess, sys
child = [sys.executable, "-c", "import time; time.sleep(600)"]
print(subprocess.Popen(child, env={}, start_new_session=True, stdout=subprocess.DEVNULL).pid, flush=True)
sys.stdin.read()
"""


def test_a_process_that_hides_its_environment_is_identified_by_its_parent_dead_or_alive() -> None:
    """A process that outlives its raylet by a minute, as Ray's agents do."""
    parent = subprocess.Popen(
        [sys.executable, "-c", HIDING], env={"LONGSHORE_RUN_TOKEN": "x2"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        known = find_run_processes("x2")
        assert {each.pid for each in known} == {parent.pid, child}
        parent.communicate()
        assert find_run_processes("x2") == set()
        assert {each.pid for each in find_run_processes("x2", known)} == {child}
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_foreign_process_is_never_touched() -> None:
    foreign = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={"LONGSHORE_RUN_TOKEN": "x1"}
    )
    try:
        assert foreign.pid not in {each.pid for each in find_run_processes("x")}
        assert foreign.pid in {each.pid for each in find_run_processes("x1")}
    finally:
        foreign.kill()
        foreign.wait()


ORPHANED = """
import os, signal, subprocess, sys, time
from pathlib import Path
from launch.processes.process_reaper import ProcessReaper
token, folder, how = sys.argv[1:]
with ProcessReaper(token, Path(folder)) as reaper:
    stays = [sys.executable, "-c", "import time; time.sleep(600)"]
    subprocess.Popen(stays, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if how == "cannot be replaced":
        sys.executable = "/nowhere"
    os.kill(reaper.pid, signal.SIGKILL)
    if how == "is killed":
        time.sleep(600)
print("summary")
"""


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_nothing_is_left_of_a_run_whose_process_reaper_was_killed(tmp_path: Path, how: str) -> None:
    """The driver notices it while it runs, and also where it ends at the same time."""
    token, folder, errors = f"test-{secrets.token_hex(8)}", tmp_path / "temporary", tmp_path / "errors"
    folder.mkdir()
    with errors.open("wb") as stderr:
        owner = subprocess.Popen(
            [sys.executable, "-c", ORPHANED, token, str(folder), how], stdout=subprocess.DEVNULL, stderr=stderr
        )
    try:
        said = "remark: the process reaper was killed; another one has taken its place\n"
        eventually("word of it, once", lambda: errors.read_text() == said, 60)
        if how == "is killed":
            owner.kill()
        assert owner.wait(60) == (-signal.SIGKILL if how == "is killed" else 0)
        assert gone(token)
        eventually("the end of its folder", lambda: not folder.exists(), 60)
    finally:
        owner.kill()
        for process in find_run_processes(token):
            os.kill(process.pid, signal.SIGKILL)


def test_a_run_whose_process_reaper_cannot_be_replaced_says_so_and_ends_normally(tmp_path: Path) -> None:
    token = f"test-{secrets.token_hex(8)}"
    command = [sys.executable, "-c", ORPHANED, token, str(tmp_path), "cannot be replaced"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    for process in find_run_processes(token):
        os.kill(process.pid, signal.SIGKILL)
    assert (done.returncode, done.stdout) == (0, "summary\n")
    assert "the process reaper ended and cannot be replaced ([Errno 2]" in done.stderr
