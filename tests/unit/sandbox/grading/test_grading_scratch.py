"""If these fail, a killed grader leaves the agent's files on the host even after the next grading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandbox.grading.containers.scratch import scratch_folder

_KILLED = """
from sandbox.grading.containers.scratch import scratch_folder
import os, signal
with scratch_folder() as folder:
    (folder / "0.raw").write_bytes(b"x")
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_scratch_folders_of_killed_processes_are_removed_and_those_of_living_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True, check=False, env=environment)
    scratch = Path(done.stdout.strip())
    assert done.returncode == -signal.SIGKILL
    assert (scratch / "0.raw").exists()
    (tmp_path / "longshore-artifacts-of-somebody").mkdir()
    with scratch_folder() as mine:
        with scratch_folder() as other:
            assert mine.is_dir()
            assert other.is_dir()
        assert not scratch.exists()
    assert [each.name for each in tmp_path.iterdir()] == ["longshore-artifacts-of-somebody"]
