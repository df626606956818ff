"""The receiving side of each arm that sends over a socket; the sender is a process of its own.

Each returns trajectories a second over ``seconds``, counted from the first that arrived.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import orjson
import zmq
import zmq.asyncio

from launch.bench.transport.workload import GROUP_SIZE, MAX_BYTES, RUN, most_of, number_of, plan_of, size_of
from protocol.errors import InfraError
from protocol.journal import AppendOutcome, Journal, JournalSettings
from protocol.stream import Received, TrajectoryReceiver
from protocol.stream.sender import BUDGET_BYTES

_END_S = 120.0
_STALL_S = 1.0
_PLENTY = 1 << 50
_HIGH_WATER = 64
_KERNEL_BYTES = 16 << 20
"""Of a TCP connection over loopback, both ends."""
_GROWTH_BYTES = 8 << 20
"""Of a process, beside what it holds: Python's own arenas."""


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


@contextmanager
def sender(kind: str, endpoint: str, tokens: int, count: int) -> Generator[subprocess.Popen[bytes]]:
    """A sending process; closing its standard input ends it."""
    command = [sys.executable, "-m", "launch.bench.transport.sender", kind, endpoint, str(tokens), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a sender says at its end.  Raises InfraError for one that failed."""
    output, _ = process.communicate(timeout=_END_S)
    if process.returncode:
        raise InfraError(f"the sender ended with exit code {process.returncode}; its traceback is above")
    return orjson.loads(output)


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

        def append(items: Sequence[Received]) -> Sequence[AppendOutcome]:
            return journal.append([item.arrival() for item in items])[0]

        async def store(items: Sequence[Received]) -> Sequence[AppendOutcome]:
            return await loop.run_in_executor(thread, append, items)

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
        with sender("ours", receiver.endpoint, tokens, most_of(tokens, seconds)) as process:
            async with asyncio.timeout(_END_S):
                await _until(lambda: over.is_set() or process.poll() is not None)  # it ends when it has sent all
            said = await asyncio.to_thread(ended, process)
    return _Run(count.per_s, set(said["acked"]), arrived)


async def stalled(tokens: int) -> int:
    """Lost, of more trajectories than all buffers together hold, before a reader that stands still until nothing
    moves.  Raises InfraError where sender or receiver held more than its budget, by their own count, or this process
    grew by much more than twice the receiver's."""
    size = size_of(tokens)
    number = 2 * (_buffers(size) // size) + 64
    names, moving = set[str](), asyncio.Event()
    held, before = 0, _resident_bytes()

    async def append(items: Sequence[Received]) -> Sequence[AppendOutcome]:
        await moving.wait()
        names.update(item.summary.ticket.trajectory_id for item in items)
        return [AppendOutcome.APPENDED] * len(items)

    async with TrajectoryReceiver(RUN, append, max_bytes=MAX_BYTES) as receiver:
        with sender("all_at_once", receiver.endpoint, tokens, number) as process:
            async with asyncio.timeout(_END_S):
                await _until(lambda: receiver.statistics().pending_bytes + size > receiver.window_bytes)
                await asyncio.sleep(_STALL_S)
                held, grown = receiver.statistics().pending_bytes, _resident_bytes() - before
                moving.set()
                await _until(lambda: len(names) == number or process.poll() is not None)
            said = await asyncio.to_thread(ended, process)
    for what, bytes_, most in (
        ("the receiver held", held, receiver.window_bytes),
        ("the sender held", int(said["held_bytes"]), BUDGET_BYTES),
        ("the receiver's process grew by", grown, 2 * receiver.window_bytes + _GROWTH_BYTES),
    ):
        if bytes_ > most:
            raise InfraError(f"{what} {bytes_} bytes, and its budget is {most}")
    return number - len(names)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _until(holds: Callable[[], bool]) -> None:
    """Look now and then: what is waited for is partly another process's."""
    while not holds():  # noqa: ASYNC110  no event tells of another process's end
        await asyncio.sleep(0.01)


async def raw(tokens: int, seconds: float) -> Arm:
    """``zmq.asyncio`` DEALER to ROUTER with the same frames; nothing is checked or answered."""
    count = _Count(seconds)
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as socket:
        endpoint = _bind(cast("zmq.Socket[bytes]", socket))
        with sender("raw", endpoint, tokens, most_of(tokens, 100 * seconds)) as process:
            async with asyncio.timeout(_END_S):
                await socket.recv_multipart(copy=False)
                while count.add():
                    await socket.recv_multipart(copy=False)
            process.kill()
    return Arm(count.per_s)


def raw_blocking(tokens: int, seconds: float) -> Arm:
    count = _Count(seconds)
    with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.ROUTER) as socket:
        socket.rcvtimeo = int(_END_S * 1000)
        endpoint = _bind(socket)
        with sender("raw_blocking", endpoint, tokens, most_of(tokens, 100 * seconds)) as process:
            socket.recv_multipart(copy=False)
            while count.add():
                socket.recv_multipart(copy=False)
            process.kill()
    return Arm(count.per_s)


def pubsub_lost(tokens: int) -> int:
    """Lost by PUB/SUB before a reader that stands still while as much is sent."""
    size = size_of(tokens)
    number = 2 * (_buffers(size) // size) + 64
    with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.SUB) as socket:
        socket.subscribe(b"")
        socket.rcvtimeo = int(_END_S * 1000)
        endpoint = _bind(socket)
        with sender("pubsub", endpoint, tokens, number) as process:
            time.sleep(_STALL_S)
            arrived = 0
            while socket.recv_multipart(copy=False)[0].bytes:
                arrived += 1
            ended(process)
    return number - arrived


def _bind(socket: zmq.Socket[bytes]) -> str:
    socket.linger = 0
    socket.set_hwm(_HIGH_WATER)
    return f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


def _buffers(size: int) -> int:
    """Bytes that all buffers on the way hold together: the sender's, ZeroMQ's on both sides, the kernel's."""
    return BUDGET_BYTES + 2 * _HIGH_WATER * size + _KERNEL_BYTES
