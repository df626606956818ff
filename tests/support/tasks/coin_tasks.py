"""Task folders in Terminal-Bench's format whose hidden test tosses a coin: whatever the agent does, the rewards of a
group differ nearly always, so that a model that can do nothing yet has something to train on."""

from __future__ import annotations

from pathlib import Path

from launch.bench.coin_tasks import coin_task
from sandbox.tasks.formats.terminal_bench import write_task


def write_coin_tasks(folder: Path, count: int = 8) -> Path:
    """``folder`` with ``count`` tasks in it."""
    for number in range(count):
        instruction = f"Create the file coin{number}.txt with the text red blue."
        write_task(coin_task(f"coin-{number}", instruction, f"echo red blue > coin{number}.txt\n"), folder)
    return folder
