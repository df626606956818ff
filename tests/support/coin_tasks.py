"""Task folders in Terminal-Bench's format whose hidden test tosses a coin: whatever the agent does, the rewards of a
group differ nearly always, so that a model that can do nothing yet has something to train on."""

from __future__ import annotations

from pathlib import Path

from sandbox.tasks.task import Task
from sandbox.tasks.terminal_bench import write_task

_TOSS = """#!/bin/sh
read -r uuid < /proc/sys/kernel/random/uuid
echo "short test summary info"
case "$uuid" in
    [0-7]*) echo "PASSED heads" ;;
    *) echo "FAILED heads" ;;
esac
"""


def write_coin_tasks(folder: Path, count: int = 8) -> Path:
    """``folder`` with ``count`` tasks in it."""
    for number in range(count):
        write_task(
            Task(
                id=f"coin-{number}",
                instruction=f"Create the file coin{number}.txt with the text red blue.",
                family="coin",
                run_tests=_TOSS,
                expected_tests=("heads",),
                solution=f"echo red blue > coin{number}.txt\n",
                workdir="/app",
                agent_timeout_s=30.0,
                test_timeout_s=20.0,
            ),
            folder,
        )
    return folder
