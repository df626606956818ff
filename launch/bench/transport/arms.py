"""The receiving side of each arm that sends over a socket; the sender is a process of its own.

Each returns trajectories a second over ``seconds``, counted from the first that arrived.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import zmq
import zmq.asyncio

from launch.bench.transport.ends import END_S, bind, ended, started, until
from launch.bench.transport.workload import GROUP_SIZE, MAX_BYTES, RUN, most_of, number_of, plan_of
from protocol.journal import AppendOutcome, Journal, JournalSettings
from protocol.stream import Received, TrajectoryReceiver

_PLENTY = 1 << 50


class Arm(NamedTuple):
    per_s: float
    lost: int = 0
    """Acknowledged and not received."""


Store: TypeAlias = Callable[[Sequence[Received]], Awaitable[Sequence[AppendOutcome]]]


class _Count:
    """How many arrived, and when those of the window did."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self.begun, self.last, self.counted = seconds, 0.0, 0.0, 0

    def add(self, number: int = 1) -> bool:
        """False once the window is over."""
        now = time.perf_counter()
        if not self.begun:
            self.begun = now
            return True
        if now - self.begun > self._seconds:
            return False
        self.counted, self.last = self.counted + number, now
        return True

    @property
    def per_s(self) -> float:
        return self.counted / (self.last - self.begun) if self.counted else 0.0


async def ours(tokens: int, seconds: float) -> Arm:
    """The whole way: trajectory, frames, checks, acknowledgement; nothing is stored."""
    run = await _ours(tokens, seconds, _forget)
    return Arm(run.per_s, len(run.acked - run.arrived))


async def ours_durable(tokens: int, seconds: float, folder: Path) -> Arm:
    """The same with a journal: acknowledged when its transaction is on the disk."""
    path = folder / "journal.sqlite"
    settings = JournalSettings(
        run_id=RUN, max_trajectory_bytes=MAX_BYTES, budget_bytes=_PLENTY, dynamic_sampling=False
    )  # all rewards are alike, and nothing may be dropped for it
    with ThreadPoolExecutor(1) as thread:
        loop = asyncio.get_running_loop()
        journal = await loop.run_in_executor(thread, Journal, path, settings, _plenty)

        def open_groups() -> None:
            for group in range(most_of(tokens, seconds) // plan_of(0).size):
                journal.open_group(plan_of(group), b"")

        async def store(items: Sequence[Received]) -> Sequence[AppendOutcome]:
            arrivals = [item.arrival() for item in items]
            return (await loop.run_in_executor(thread, journal.append, arrivals))[0]

        await loop.run_in_executor(thread, open_groups)
        try:
            run = await _ours(tokens, seconds, store)
        finally:
            await loop.run_in_executor(thread, journal.close)
    return Arm(run.per_s, len(run.acked - _stored(path)))


def _stored(journal: Path) -> set[int]:
    """What lies in the journal's file with its bytes, read with SQLite alone."""
    with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT grp, sample FROM rows JOIN payloads USING (trajectory)").fetchall()
    return {group * GROUP_SIZE + sample for group, sample in rows}


def _plenty(folder: Path) -> int:  # noqa: ARG001  the journal asks for a folder's free bytes; its reserve is not on trial
    return _PLENTY


async def _forget(items: Sequence[Received]) -> Sequence[AppendOutcome]:
    return [AppendOutcome.APPENDED] * len(items)


class _Run(NamedTuple):
    per_s: float
    acked: set[int]
    """By the sender's own word."""
    arrived: set[int]


async def _ours(tokens: int, seconds: float, store: Store) -> _Run:
    count, arrived, over = _Count(seconds), set[int](), asyncio.Event()

    async def append(items: Sequence[Received]) -> Sequence[AppendOutcome]:
        outcomes = await store(items)
        arrived.update(number_of(item.summary.ticket) for item in items)
        if not count.add(len(items)):
            over.set()
        return outcomes

    async with TrajectoryReceiver(RUN, append, max_bytes=MAX_BYTES) as receiver:
        with started("sender", "ours", receiver.endpoint, tokens, most_of(tokens, seconds)) as process:
            async with asyncio.timeout(END_S):
                await until(lambda: over.is_set() or process.poll() is not None)  # it ends when it has sent all
            said = await asyncio.to_thread(ended, process)
    return _Run(count.per_s, set(said["acked"]), arrived)


async def raw(tokens: int, seconds: float) -> Arm:
    """``zmq.asyncio`` DEALER to ROUTER with the same frames; nothing is checked or answered."""
    count = _Count(seconds)
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as socket:
        endpoint = bind(cast("zmq.Socket[bytes]", socket))
        with started("sender", "raw", endpoint, tokens, most_of(tokens, 100 * seconds)) as process:
            async with asyncio.timeout(END_S):
                await socket.recv_multipart(copy=False)
                while count.add():
                    await socket.recv_multipart(copy=False)
            process.kill()
    return Arm(count.per_s)


def raw_blocking(tokens: int, seconds: float) -> Arm:
    count = _Count(seconds)
    with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.ROUTER) as socket:
        socket.rcvtimeo = int(END_S * 1000)
        endpoint = bind(socket)
        with started("sender", "raw_blocking", endpoint, tokens, most_of(tokens, 100 * seconds)) as process:
            socket.recv_multipart(copy=False)
            while count.add():
                socket.recv_multipart(copy=False)
            process.kill()
    return Arm(count.per_s)
