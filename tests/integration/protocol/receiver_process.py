"""A receiver with a journal in a process of its own: ``receiver_process.py FOLDER PORT [die-after-append]``.

It opens group 0..9 of four samples, prints its endpoint, and serves until it is killed.  With ``die-after-append`` it
kills itself with SIGKILL when the first batch is durable and before any of it is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from support.trajectories import RUN, make_plan

from protocol.journal import AppendOutcome, Journal, JournalSettings
from protocol.stream import Received, TrajectoryReceiver

GROUPS = 10


def open_journal(folder: Path) -> Journal:
    settings = JournalSettings(run_id=RUN, max_trajectory_bytes=1 << 20, budget_bytes=1 << 30, disk_floor_bytes=0)
    return Journal(folder / "buffer" / "journal.sqlite", settings)


async def serve(folder: Path, port: int, die: bool) -> None:
    journal = open_journal(folder)
    for group in range(GROUPS):
        journal.open_group(make_plan(group), b"")

    async def append(items: Sequence[Received]) -> Sequence[AppendOutcome]:
        outcomes, _ = journal.append([item.arrival() for item in items])
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcomes

    async with TrajectoryReceiver(RUN, append, port=port, max_bytes=1 << 20) as receiver:
        sys.stdout.write(f"{receiver.port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), "die-after-append" in sys.argv))
