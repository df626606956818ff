"""Tasks that take no time, whose hidden test flips a coin.

The rewards of a group usually differ, so that the learner can train; sometimes they do not, and the group is dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from sandbox.tasks.formats.terminal_bench import write_task
from sandbox.tasks.task import Task

COUNT = 24
"""Number of tasks, few enough for many epochs in one run."""
_TOSS = """#!/bin/sh
read -r uuid < /proc/sys/kernel/random/uuid
echo "short test summary info"
case "$uuid" in
    [0-7]*) echo "PASSED heads" ;;
    *) echo "FAILED heads" ;;
esac
"""


def write_coin_tasks(folder: Path) -> Sequence[str]:
    """Write :data:`COUNT` task folders, and return their names."""
    names = [f"coin-{number:02d}" for number in range(COUNT)]
    for name in names:
        write_task(coin_task(name, f"Write a number to note.txt ({name}).", "echo 1 > note.txt\n"), folder)
    return names


def coin_task(name: str, instruction: str, solution: str) -> Task:
    return Task(
        id=name,
        instruction=instruction,
        family="coin",
        run_tests=_TOSS,
        expected_tests=("heads",),
        solution=solution,
        workdir="/app",
        agent_timeout_s=30.0,
        test_timeout_s=20.0,
    )


def order_tasks(names: Sequence[str], seed: int) -> Sequence[str]:
    """Return the tasks in the order of a run with ``seed``: by a hash of seed and name."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).hexdigest())
