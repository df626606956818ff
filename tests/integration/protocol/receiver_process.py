"""A receiver with a journal in a process of its own: ``receiver_process.py FOLDER [--groups N --trajectory-bytes N
--budget-bytes N] [--host HOST --port PORT] [--die-after-append]``.

It opens N groups of four samples, ten by default, prints its endpoint, and serves until it is killed.  With
``--die-after-append`` it kills itself with SIGKILL when the first batch is durable and before any of it is
acknowledged.  It listens on a socket in its folder; with ``--host`` on TCP, its keys are one JSON line on standard
input, and it says whom it refuses.
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
TRAJECTORY_BYTES, BUDGET_BYTES = 1 << 20, 1 << 30


def open_journal(folder: Path, trajectory_bytes: int = TRAJECTORY_BYTES, budget_bytes: int = BUDGET_BYTES) -> Journal:
    settings = JournalSettings(
        run_id=RUN,
        max_trajectory_bytes=trajectory_bytes,
        budget_bytes=budget_bytes,
        disk_floor_bytes=0,
        dynamic_sampling=True,
    )
    return Journal(folder / "buffer" / "journal.sqlite", settings)


def read_keys() -> CurveServer:
    keys = json.loads(sys.stdin.readline())
    clients = frozenset(key.encode() for key in keys["clients"])
    return CurveServer(keys["public"].encode(), keys["secret"].encode(), clients)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def serve(given: argparse.Namespace) -> None:
    curve = None if given.host is None else read_keys()
    journal = open_journal(given.folder, given.trajectory_bytes, given.budget_bytes)
    for group in range(given.groups):
        journal.open_group(make_plan(group), b"")

    async def append(items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
        outcomes, _ = journal.append_batch([item.to_arrival() for item in items])
        if given.die_after_append:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcomes

    async with TrajectoryReceiver(
        RUN,
        append,
        host=given.host or "127.0.0.1",
        port=given.port,
        unix_socket=given.folder / "socket" if given.host is None else None,
        max_bytes=1 << 20,
        curve=curve,
        on_refused=lambda reason, sender, _: say("refused", reason, sender),
    ) as receiver:
        say(receiver.endpoint)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--trajectory-bytes", type=int, default=TRAJECTORY_BYTES)
    parser.add_argument("--budget-bytes", type=int, default=BUDGET_BYTES)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host")
    parser.add_argument("--die-after-append", action="store_true")
    asyncio.run(serve(parser.parse_args()))
