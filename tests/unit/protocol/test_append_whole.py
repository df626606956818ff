"""If this fails, a disk that was full for a moment leaves half a line, and no reader gets past it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHILD = """
import resource, signal, sys
from pathlib import Path
from protocol.filesystem import append_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
append_whole(path, b"first" + bytes([10]))
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 100))
try:
    append_whole(path, b"second" + bytes([10]))
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    append_whole(path, b"third" + bytes([10]))
"""


def test_a_line_that_did_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    subprocess.run([sys.executable, "-c", CHILD, str(file)], check=True, cwd=Path(__file__).parents[3])
    assert file.read_text() == "first\nthird\n"
