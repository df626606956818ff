"""If these fail, a disk that was full or a process that died leaves half a line, and no reader gets past it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.events import EventLog
from protocol.files.filesystem import cut_torn_line

CHILD = """
import resource, signal, sys
from pathlib import Path
from protocol.files.filesystem import append_atomically
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
append_atomically(path, b"first" + bytes([10]))
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 100))
try:
    append_atomically(path, b"second" + bytes([10]))
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    append_atomically(path, b"third" + bytes([10]))
"""


def test_a_line_that_does_not_fit_leaves_no_partial_line(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    subprocess.run([sys.executable, "-c", CHILD, str(file)], check=True, cwd=Path(__file__).parents[4])
    assert file.read_text() == "first\nthird\n"


@pytest.mark.parametrize("whole", [b"", b"first\n", b"first\nsecond\n", b"x" * 70_000 + b"\n"])
@pytest.mark.parametrize("torn", [b"", b"{", b"y" * 200_000])
def test_only_a_torn_last_line_is_removed(tmp_path: Path, whole: bytes, torn: bytes) -> None:
    file = tmp_path / "lines"
    cut_torn_line(file)
    assert not file.exists()
    file.write_bytes(whole + torn)
    cut_torn_line(file)
    assert file.read_bytes() == whole


def test_the_first_event_after_a_restart_does_not_join_a_torn_line(tmp_path: Path) -> None:
    file = tmp_path / "events" / "buffer.jsonl"
    file.parent.mkdir()
    file.write_bytes(b'{"kind":"group.closed"}\n{"kind":"group.op')
    log = EventLog(tmp_path, "buffer", "node-0")
    log.emit("scheduler.restored")
    log.close()
    kinds = [json.loads(line)["kind"] for line in file.read_bytes().splitlines()]
    assert kinds == ["group.closed", "scheduler.restored"]
