"""A receiver with a journal in a process of its own: ``receiver_process.py FOLDER PORT [--host HOST]
[--die-after-append]``.

It opens group 0..9 of four samples, prints its port, and serves until it is killed.  With ``--die-after-append`` it
kills itself with SIGKILL when the first batch is durable and before any of it is acknowledged.  With ``--host`` its
keys are one JSON line on standard input, and it says whom it refuses.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from protocol.journal import AppendOutcome, Journal, JournalSettings
from protocol.stream import CurveServer, ReceivedTrajectory, TrajectoryReceiver
from tests.support.runs.trajectories import RUN, make_plan

GROUPS = 10


def open_journal(folder: Path) -> Journal:
    settings = JournalSettings(
        run_id=RUN, max_trajectory_bytes=1 << 20, budget_bytes=1 << 30, disk_floor_bytes=0, dynamic_sampling=True
    )
    return Journal(folder / "buffer" / "journal.sqlite", settings)


def read_keys() -> CurveServer:
    keys = json.loads(sys.stdin.readline())
    clients = frozenset(key.encode() for key in keys["clients"])
    return CurveServer(keys["public"].encode(), keys["secret"].encode(), clients)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def serve(folder: Path, port: int, host: str | None, die: bool) -> None:
    curve = None if host is None else read_keys()
    journal = open_journal(folder)
    for group in range(GROUPS):
        journal.open_group(make_plan(group), b"")

    async def append(items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
        outcomes, _ = journal.append_batch([item.to_arrival() for item in items])
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcomes

    async with TrajectoryReceiver(
        RUN,
        append,
        host=host or "127.0.0.1",
        port=port,
        max_bytes=1 << 20,
        curve=curve,
        on_refused=lambda reason, sender, _: say("refused", reason, sender),
    ) as receiver:
        say(receiver.port)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--host")
    parser.add_argument("--die-after-append", action="store_true")
    given = parser.parse_args()
    asyncio.run(serve(given.folder, given.port, given.host, given.die_after_append))
