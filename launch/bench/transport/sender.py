"""``python -m launch.bench.transport.sender KIND ENDPOINT TOKENS COUNT``: the sending process of an arm.

It sends at most ``COUNT`` trajectories as fast as possible until its standard input is closed, and then prints one JSON
object: the numbers of sent and acknowledged trajectories, and the bytes that it held at most and grew by.
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

_CONCURRENCY = 256
_DEADLINE_S = 600.0


@dataclass(slots=True)
class SenderResult:
    sent: int = 0
    acknowledged: list[int] = field(default_factory=list[int])
    """Acknowledged trajectories, by :func:`launch.bench.transport.workload.trajectory_number`."""
    held_bytes: int = 0
    grown_bytes: int = 0


async def send_longshore(
    endpoint: str, base: Trajectory, count: int, stop: threading.Event, concurrency: int = _CONCURRENCY
) -> SenderResult:
    """Send with ``concurrency`` callers of one sender, each with copies of ``base`` under its own rollout requests."""
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
            for _ in range(concurrency):
                group.create_task(work(source))
    done.grown_bytes = peak_bytes() - before
    return done


async def send_all_at_once(endpoint: str, tokens: int, count: int, stop: threading.Event) -> SenderResult:
    """Send with three times as many callers as the sender's budget allows, with trajectories whose frames are
    copies."""
    base = build_segmented_trajectory(tokens)
    return await send_longshore(
        endpoint, base, count, stop, 3 * BUDGET_BYTES // payload_size(encode_trajectory(base)) + 1
    )


async def send_raw_zmq(endpoint: str, tokens: int, count: int, stop: threading.Event) -> SenderResult:
    """Send the same frames through plain ``zmq.asyncio``."""
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
    """Publish ``count`` messages and then an empty one."""
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
    stop = threading.Event()

    def listen() -> None:
        while os.read(0, 4096):
            pass
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    match kind:
        case "ours":
            done = asyncio.run(send_longshore(endpoint, build_trajectory(tokens), count, stop))
        case "all_at_once":
            done = asyncio.run(send_all_at_once(endpoint, tokens, count, stop))
        case "raw":
            done = asyncio.run(send_raw_zmq(endpoint, tokens, count, stop))
        case "raw_blocking":
            done = send_raw_zmq_blocking(endpoint, tokens, count, stop)
        case _:
            done = publish_with_pubsub(endpoint, tokens, count, stop)
    sys.stdout.buffer.write(orjson.dumps(asdict(done)) + b"\n")


if __name__ == "__main__":
    with contextlib.suppress(SenderClosedError):
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
