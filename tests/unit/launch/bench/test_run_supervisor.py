"""If these fail, `launch.bench chaos` takes a run that failed for one that it killed, or kills what is another's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from launch.bench.chaos.run_supervisor import RunSupervisor
from launch.processes.background_tasks import background_services
from protocol.cli.exit_codes import EXIT_USER
from protocol.errors import InfraError

SCRIPTED = """
import os, signal, sys, time
from pathlib import Path
from launch.bench.chaos.kill_points import Kill, KilledProcess, write_kill
folder = Path(sys.argv[1])
with (folder / "said").open("a") as said:
    said.write(" ".join(sys.argv[2:]) + "\\n")
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell in the background has it ignore
if "--resume" in sys.argv:
    signal.pause()
if "unseen" not in sys.argv:
    write_kill(folder, Kill(time.time(), KilledProcess.DRIVER, os.getpid(), None))
os.kill(os.getpid(), signal.SIGKILL)
"""
SOON_S = 600.0


def command(folder: Path, *words: str) -> RunSupervisor:
    """A command whose driver is killed once and, when resumed, waits for the interrupt."""
    return RunSupervisor(folder, words, "chaos", (sys.executable, "-c", SCRIPTED, str(folder)))


async def test_a_run_is_resumed_with_a_new_token_after_its_driver_was_killed(tmp_path: Path) -> None:
    running, output = command(tmp_path, "r.toml"), tmp_path / "said"
    async with asyncio.timeout(SOON_S), background_services(running.keep_running()):
        while not output.exists() or len(output.read_text().splitlines()) < 2:  # noqa: ASYNC110  another process's doing
            await asyncio.sleep(0.05)
    (first, *begun), (second, *again) = [line.split() for line in output.read_text().splitlines()]
    assert begun == ["r.toml", "--run-id", "chaos"]
    assert again == ["r.toml", "--resume", "chaos"]
    assert first != second == running.token


async def test_an_unplanned_death_of_the_driver_fails_the_bench(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="by itself"):
        async with asyncio.timeout(SOON_S):
            await command(tmp_path, "unseen").keep_running()


def test_the_drivers_process_prints_only_the_output_of_the_run(tmp_path: Path) -> None:
    program = RunSupervisor(tmp_path, (), "chaos").program
    done = subprocess.run([*program, "token", "nowhere.toml"], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_USER
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error"]
