"""The receiving side of each arm with a socket; the sender is a separate process.

Each function returns trajectories per second over ``seconds``, counted from the first arrival.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import zmq
import zmq.asyncio

from launch.bench.transport.subprocesses import TIMEOUT_S, bind_to_loopback, poll_until, read_output, start_module
from launch.bench.transport.workload import GROUP_SIZE, MAX_BYTES, RUN, group_plan, max_trajectories, trajectory_number
from protocol.journal import AppendOutcome, Journal, JournalSettings
from protocol.stream import AppendTrajectories, ReceivedTrajectory, TrajectoryReceiver

_PLENTY = 1 << 50


class TransportRate(NamedTuple):
    per_s: float
    lost: int = 0
    """Number of acknowledged trajectories that were not received."""


StoreBatch: TypeAlias = Callable[[Sequence[ReceivedTrajectory]], Awaitable[Sequence[AppendOutcome]]]


class _Count:
    """Counts arrivals and the time of the window."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self.begun, self.last, self.counted = seconds, 0.0, 0.0, 0

    def add(self, number: int = 1) -> bool:
        """Count an arrival; return false after the end of the window."""
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


async def receive_longshore(tokens: int, seconds: float) -> TransportRate:
    """Measure the complete stream: trajectory, frames, checks, acknowledgement; nothing is stored."""
    run = await _receive_from_sender(tokens, seconds, _discard)
    return TransportRate(run.per_s, len(run.acknowledged - run.arrived))


async def receive_longshore_durable(tokens: int, seconds: float, folder: Path) -> TransportRate:
    """Measure the stream with a journal: acknowledged when the transaction is on disk."""
    path = folder / "journal.sqlite"
    settings = JournalSettings(
        run_id=RUN, max_trajectory_bytes=MAX_BYTES, budget_bytes=_PLENTY, dynamic_sampling=False
    )  # all rewards are alike, and nothing may be dropped for it
    with ThreadPoolExecutor(1) as thread:
        loop = asyncio.get_running_loop()
        journal = await loop.run_in_executor(thread, Journal, path, settings, _plenty_of_disk)

        def open_groups() -> None:
            for group in range(max_trajectories(tokens, seconds) // group_plan(0).size):
                journal.open_group(group_plan(group), b"")

        async def store(items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
            arrivals = [item.to_arrival() for item in items]
            return (await loop.run_in_executor(thread, journal.append_batch, arrivals))[0]

        await loop.run_in_executor(thread, open_groups)
        try:
            run = await _receive_from_sender(tokens, seconds, store)
        finally:
            await loop.run_in_executor(thread, journal.close)
    return TransportRate(run.per_s, len(run.acknowledged - read_stored(path)))


def read_stored(journal: Path) -> set[int]:
    """Return what the journal's file stores, read with SQLite alone."""
    with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT group_id, sample FROM trajectories JOIN payloads USING (trajectory)").fetchall()
    return {group * GROUP_SIZE + sample for group, sample in rows}


def _plenty_of_disk(folder: Path) -> int:  # noqa: ARG001  the journal asks for a folder's free bytes; its reserve is not on trial
    return _PLENTY


async def _discard(items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
    return [AppendOutcome.APPENDED] * len(items)


class _ReceiverRun(NamedTuple):
    per_s: float
    acknowledged: set[int]
    """Trajectories that the sender counts as acknowledged."""
    arrived: set[int]


async def _receive_from_sender(tokens: int, seconds: float, store: StoreBatch) -> _ReceiverRun:
    count, arrived, over = _Count(seconds), set[int](), asyncio.Event()

    async def append(items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
        outcomes = await store(items)
        arrived.update(trajectory_number(item.summary.request) for item in items)
        if not count.add(len(items)):
            over.set()
        return outcomes

    async with open_receiver(append) as receiver:
        with start_module("sender", "ours", receiver.endpoint, tokens, max_trajectories(tokens, seconds)) as process:
            async with asyncio.timeout(TIMEOUT_S):
                await poll_until(lambda: over.is_set() or process.poll() is not None)  # it ends when it has sent all
            result = await asyncio.to_thread(read_output, process)
    return _ReceiverRun(count.per_s, set(result["acknowledged"]), arrived)


@asynccontextmanager
async def open_receiver(append: AppendTrajectories) -> AsyncGenerator[TrajectoryReceiver]:
    """Open a receiver as a run on one machine has it, on a Unix socket in a private folder."""
    with tempfile.TemporaryDirectory(prefix="ls-bench-") as folder:
        async with TrajectoryReceiver(
            RUN, append, unix_socket=Path(folder) / "buffer", max_bytes=MAX_BYTES
        ) as receiver:
            yield receiver


async def receive_raw_zmq(tokens: int, seconds: float) -> TransportRate:
    """Measure ``zmq.asyncio`` DEALER to ROUTER with the same frames, without checks and answers."""
    count = _Count(seconds)
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as socket:
        endpoint = bind_to_loopback(cast("zmq.Socket[bytes]", socket))
        with start_module("sender", "raw", endpoint, tokens, max_trajectories(tokens, 100 * seconds)) as process:
            async with asyncio.timeout(TIMEOUT_S):
                await socket.recv_multipart(copy=False)
                while count.add():
                    await socket.recv_multipart(copy=False)
            process.kill()
    return TransportRate(count.per_s)


def receive_raw_zmq_blocking(tokens: int, seconds: float) -> TransportRate:
    count = _Count(seconds)
    with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.ROUTER) as socket:
        socket.rcvtimeo = int(TIMEOUT_S * 1000)
        endpoint = bind_to_loopback(socket)
        with start_module(
            "sender", "raw_blocking", endpoint, tokens, max_trajectories(tokens, 100 * seconds)
        ) as process:
            socket.recv_multipart(copy=False)
            while count.add():
                socket.recv_multipart(copy=False)
            process.kill()
    return TransportRate(count.per_s)
