"""The terminal monitor as a process on a real terminal.  If these fail, somebody's shell is left unusable, a monitor
outlives the person who watched, or a small mistake ends in a traceback."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import run_json
from tests.support.fakes.fake_run import write_fake_run

COMMAND = (sys.executable, "-m", "launch.monitor")
GENEROUS_S = 300
LEFT = b"\x1b[?1049l"
"""The escape sequence that leaves the alternate screen."""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "demo"
    write_fake_run(path, steps=3, finished=False)
    return path


def read_until(terminal: int, expected: bytes) -> bytes:
    """Return the output up to the expected text; fail if the program ends before."""
    printed = b""
    while expected not in printed:
        assert select.select([terminal], [], [], GENEROUS_S)[0], printed[-500:]
        try:
            printed += os.read(terminal, 1 << 16)
        except OSError:  # the other end was closed
            break
    assert expected in printed, printed[-500:]
    return printed


@pytest.mark.parametrize(
    "end",
    [
        lambda terminal, _: os.write(terminal, b"q"),
        lambda terminal, _: os.write(terminal, b"\x03"),
        lambda _, process: process.send_signal(signal.SIGTERM),
    ],
    ids=["q", "Ctrl-C", "SIGTERM"],
)
def test_the_tui_exits_and_restores_the_terminal(
    run_dir: Path, end: Callable[[int, subprocess.Popen[bytes]], object]
) -> None:
    terminal, inner = pty.openpty()
    before = termios.tcgetattr(inner)
    env = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(
        [*COMMAND, str(run_dir), "--tui"], stdin=inner, stdout=inner, stderr=inner, env=env, start_new_session=True
    ) as process:
        try:
            read_until(terminal, b"Trajectories")
            end(terminal, process)
            read_until(terminal, LEFT)
            assert process.wait(GENEROUS_S) == 0
            assert termios.tcgetattr(inner) == before
        finally:
            process.kill()
            os.close(terminal)
            os.close(inner)


def test_the_tui_without_a_terminal_fails_with_one_line_of_advice(run_dir: Path) -> None:
    done = subprocess.run([*COMMAND, str(run_dir), "--tui"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == ["error: --tui needs a terminal: leave it out for the page, or give --json"]


def test_json_and_tui_together_are_refused(run_dir: Path) -> None:
    done = run_json("launch.monitor", run_dir, "--tui")
    assert done.exit_code == 2
    assert "give one of them" in done.output["error"]


def test_a_missing_run_is_reported_in_one_line_on_the_terminal(tmp_path: Path) -> None:
    terminal, inner = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, str(tmp_path / "none"), "--tui"], stdin=inner, stdout=inner, stderr=inner
    ) as process:
        assert process.wait(GENEROUS_S) == 2
    os.close(inner)
    printed = read_until(terminal, b"no run 'none' in ")
    os.close(terminal)
    assert printed.count(b"\n") == 1
    assert b"\x1b" not in printed
