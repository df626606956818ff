"""If these fail, a person whose run hung has no way to know where."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.processes.stack_dumps import register_stack_dump, request_stack_dumps

HANGS = """
import sys, threading
from pathlib import Path
from protocol.processes.stack_dumps import register_stack_dump

def waits_for_ever():
    lock = threading.Lock()
    lock.acquire()
    print("ready", flush=True)
    lock.acquire()

register_stack_dump(Path(sys.argv[1]), "learner-1")
threading.Thread(target=threading.Event().wait, name="writer", daemon=True).start()
waits_for_ever()
"""


@contextmanager
def hanging(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", HANGS, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_hanging_process_dumps_the_stacks_of_all_its_threads(tmp_path: Path, *, stopped: bool) -> None:
    path = tmp_path / "stacks" / "1.stacks"
    with hanging(path) as process:
        if stopped:
            process.send_signal(signal.SIGSTOP)
            await asyncio.to_thread(os.waitpid, process.pid, os.WUNTRACED)
        found = await request_stack_dumps([path])
    assert found == ({"learner-1": "was stopped (SIGSTOP)"} if stopped else {})
    written = path.read_text()
    assert "in waits_for_ever" in written
    assert written.count("hread 0x") == 2


async def test_processes_that_cannot_be_asked_are_reported_without_waiting(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "1.stacks", tmp_path / "2.stacks"
    with hanging(path):
        pass
    elsewhere.write_text('{"name":"learner-2","pid":1,"namespace":"another machine"}\n')
    assert await request_stack_dumps([path, elsewhere, tmp_path / "3.stacks"]) == {
        "learner-1": "has ended",
        "learner-2": "runs on another machine",
        "3": "has not registered for stack dumps yet",
    }


async def test_a_process_may_offer_another_file_and_be_asked_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    register_stack_dump(first, "me")
    register_stack_dump(second, "me")
    for times in (1, 2):
        assert await request_stack_dumps([second]) == {}
        assert second.read_text().count("in test_a_process_may_offer") >= times
    assert len(first.read_text().splitlines()) == 1
