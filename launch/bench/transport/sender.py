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

from launch.bench.process_memory import peak_bytes
from launch.bench.transport.subprocesses import HIGH_WATER
from launch.bench.transport.workload import (
    RUN,
    build_frames,
    build_segmented_trajectory,
    build_trajectory,
    number_trajectories,
    trajectory_number,
)
from protocol.codec import encode_trajectory, payload_size
from protocol.stream import SenderClosedError, TrajectorySender
from protocol.stream.messages import StreamData, encode_message
from protocol.stream.sender import BUDGET_BYTES
from protocol.trajectory import Trajectory

_AT_ONCE = 256
_DEADLINE_S = 600.0


@dataclass(slots=True)
class SenderResult:
    sent: int = 0
    acknowledged: list[int] = field(default_factory=list[int])
    """By :func:`launch.bench.transport.workload.number_of`."""
    held_bytes: int = 0
    grown_bytes: int = 0


async def send_longshore(
    endpoint: str, base: Trajectory, count: int, stop: threading.Event, at_once: int = _AT_ONCE
) -> SenderResult:
    """``at_once`` callers of one sender, each with a trajectory of its own at a time: ``base`` under another ticket."""
    source = iter(list(number_trajectories(base, count)))  # made before the clock runs: that is an episode's work
    done, before = SenderResult(), peak_bytes()
    async with TrajectorySender(endpoint, RUN, "bench") as sender:

        async def work(mine: Iterator[Trajectory]) -> None:
            for trajectory in mine:
                if stop.is_set():
                    return
                done.sent += 1
                await sender.send(trajectory, _DEADLINE_S)
                done.acknowledged.append(trajectory_number(trajectory.request))
                done.held_bytes = max(done.held_bytes, sender.statistics().bytes)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work(source))
    done.grown_bytes = peak_bytes() - before
    return done


async def send_all_at_once(endpoint: str, tokens: int, count: int, stop: threading.Event) -> SenderResult:
    """Three times as many callers as the sender's budget has room for, with trajectories whose frames are copies."""
    base = build_segmented_trajectory(tokens)
    return await send_longshore(
        endpoint, base, count, stop, 3 * BUDGET_BYTES // payload_size(encode_trajectory(base)) + 1
    )


async def send_raw_zmq(endpoint: str, tokens: int, count: int, stop: threading.Event) -> SenderResult:
    """The same bytes in the same frames, through ``zmq.asyncio`` and nothing else."""
    frames, done = [encode_message(StreamData(1, 1)), *build_frames(tokens)], SenderResult()
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.set_hwm(HIGH_WATER)
        socket.connect(endpoint)
        while done.sent < count and not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await socket.send_multipart(frames, copy=False)  # pyright: ignore[reportUnknownMemberType]  pyzmq's Sequence is bare
                done.sent += 1
    return done


def send_raw_zmq_blocking(endpoint: str, tokens: int, count: int, stop: threading.Event) -> SenderResult:
    frames, done = [encode_message(StreamData(1, 1)), *build_frames(tokens)], SenderResult()
    with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.DEALER) as socket:
        socket.linger, socket.sndtimeo = 0, 1000
        socket.set_hwm(HIGH_WATER)
        socket.connect(endpoint)
        while done.sent < count and not stop.is_set():
            with contextlib.suppress(zmq.Again):
                socket.send_multipart(frames, copy=False)
                done.sent += 1
    return done


def publish_with_pubsub(endpoint: str, tokens: int, count: int, stop: threading.Event) -> SenderResult:
    """``count`` messages to whoever listens, and an empty one at the end."""
    frames, done = [encode_message(StreamData(1, 1)), *build_frames(tokens)], SenderResult()
    with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.XPUB) as socket:
        socket.set_hwm(HIGH_WATER)
        socket.connect(endpoint)
        socket.recv()  # the subscription
        while done.sent < count:
            socket.send_multipart(frames, copy=False)
            done.sent += 1
        while not stop.is_set():  # the last word comes through once the reader reads
            socket.send(b"")
            stop.wait(0.05)
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
            done = asyncio.run(send_longshore(endpoint, build_trajectory(tokens), count, told))
        case "all_at_once":
            done = asyncio.run(send_all_at_once(endpoint, tokens, count, told))
        case "raw":
            done = asyncio.run(send_raw_zmq(endpoint, tokens, count, told))
        case "raw_blocking":
            done = send_raw_zmq_blocking(endpoint, tokens, count, told)
        case _:
            done = publish_with_pubsub(endpoint, tokens, count, told)
    sys.stdout.buffer.write(orjson.dumps(asdict(done)) + b"\n")


if __name__ == "__main__":
    with contextlib.suppress(SenderClosedError):
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
