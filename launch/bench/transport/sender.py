"""The sending process of an arm: ``python -m launch.bench.transport.sender KIND ENDPOINT TOKENS COUNT``.

It sends at most ``COUNT`` trajectories as fast as it may, until its standard input is closed, then prints one JSON
object: how many were sent, which were acknowledged, and the most bytes that it held for that, by its own count and by
what it grew by.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import orjson
import zmq
import zmq.asyncio

from launch.bench.peak import peak_bytes
from launch.bench.transport.ends import HIGH_WATER
from launch.bench.transport.workload import RUN, frames_of, number_of, numbered, segmented, trajectory_of
from protocol.codec import encode, payload_size
from protocol.messages import Data, write_message
from protocol.stream import SenderClosed, TrajectorySender
from protocol.stream.sender import BUDGET_BYTES
from protocol.trajectory import Trajectory

_AT_ONCE = 256
_DEADLINE_S = 600.0


@dataclass(slots=True)
class Sent:
    sent: int = 0
    acked: list[int] = field(default_factory=list[int])
    """By :func:`launch.bench.transport.workload.number_of`."""
    held_bytes: int = 0
    grown_bytes: int = 0


async def ours(endpoint: str, base: Trajectory, count: int, told: threading.Event, at_once: int = _AT_ONCE) -> Sent:
    """``at_once`` callers of one sender, each with a trajectory of its own at a time: ``base`` under another ticket."""
    source = iter(list(numbered(base, count)))  # made before the clock runs: that is an episode's work
    done, before = Sent(), peak_bytes()
    async with TrajectorySender(endpoint, RUN, "bench") as sender:

        async def work(mine: Iterator[Trajectory]) -> None:
            for trajectory in mine:
                if told.is_set():
                    return
                done.sent += 1
                await sender.send(trajectory, _DEADLINE_S)
                done.acked.append(number_of(trajectory.ticket))
                done.held_bytes = max(done.held_bytes, sender.statistics().bytes)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work(source))
    done.grown_bytes = peak_bytes() - before
    return done


async def all_at_once(endpoint: str, tokens: int, count: int, told: threading.Event) -> Sent:
    """Three times as many callers as the sender's budget has room for, with trajectories whose frames are copies."""
    base = segmented(tokens)
    return await ours(endpoint, base, count, told, 3 * BUDGET_BYTES // payload_size(encode(base)) + 1)


async def raw(endpoint: str, tokens: int, count: int, told: threading.Event) -> Sent:
    """The same bytes in the same frames, through ``zmq.asyncio`` and nothing else."""
    frames, done = [write_message(Data(1, 1)), *frames_of(tokens)], Sent()
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.set_hwm(HIGH_WATER)
        socket.connect(endpoint)
        while done.sent < count and not told.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await socket.send_multipart(frames, copy=False)  # pyright: ignore[reportUnknownMemberType]  pyzmq's Sequence is bare
                done.sent += 1
    return done


def raw_blocking(endpoint: str, tokens: int, count: int, told: threading.Event) -> Sent:
    frames, done = [write_message(Data(1, 1)), *frames_of(tokens)], Sent()
    with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.DEALER) as socket:
        socket.linger, socket.sndtimeo = 0, 1000
        socket.set_hwm(HIGH_WATER)
        socket.connect(endpoint)
        while done.sent < count and not told.is_set():
            with contextlib.suppress(zmq.Again):
                socket.send_multipart(frames, copy=False)
                done.sent += 1
    return done


def pubsub(endpoint: str, tokens: int, count: int, told: threading.Event) -> Sent:
    """``count`` messages to whoever listens, and an empty one at the end."""
    frames, done = [write_message(Data(1, 1)), *frames_of(tokens)], Sent()
    with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.XPUB) as socket:
        socket.set_hwm(HIGH_WATER)
        socket.connect(endpoint)
        socket.recv()  # the subscription
        while done.sent < count:
            socket.send_multipart(frames, copy=False)
            done.sent += 1
        while not told.is_set():  # the last word comes through once the reader reads
            socket.send(b"")
            told.wait(0.05)
    return done


def main(kind: str, endpoint: str, tokens: int, count: int) -> None:
    told = threading.Event()

    def listen() -> None:
        while os.read(0, 4096):
            pass
        told.set()

    threading.Thread(target=listen, daemon=True).start()
    match kind:
        case "ours":
            done = asyncio.run(ours(endpoint, trajectory_of(tokens), count, told))
        case "all_at_once":
            done = asyncio.run(all_at_once(endpoint, tokens, count, told))
        case "raw":
            done = asyncio.run(raw(endpoint, tokens, count, told))
        case "raw_blocking":
            done = raw_blocking(endpoint, tokens, count, told)
        case _:
            done = pubsub(endpoint, tokens, count, told)
    sys.stdout.buffer.write(orjson.dumps(asdict(done)) + b"\n")


if __name__ == "__main__":
    with contextlib.suppress(SenderClosed):
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
