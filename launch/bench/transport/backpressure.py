"""Measures a stalled reader: longshore's stream may lose nothing and hold no more than its budget, while PUB/SUB
loses much."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from launch.bench.transport.subprocesses import HIGH_WATER, TIMEOUT_S, bind_to_loopback, read_output, start_module
from launch.bench.transport.workload import payload_bytes
from protocol.stream.sender import BUDGET_BYTES

STALL_S = 1.0
_KERNEL_BYTES = 16 << 20
"""Buffer size of a TCP connection over loopback, both ends."""
_SPARE_BYTES = 32 << 20
"""Bytes by which a process may grow besides twice its budget: Python's arenas, and waiting callers."""

_READ_BUFFER_BYTES = 8 << 10
"""Size of ZeroMQ's reads. Over a Unix socket a receiver's process grows by one for each message that it holds, and over
TCP by none."""


@dataclass(frozen=True, slots=True)
class StallMeasurement:
    """The measurements of :mod:`launch.bench.transport.stalled_reader`, in bytes."""

    lost: int
    """Number of lost trajectories."""
    message_bytes: int
    """Size of one trajectory."""
    window_bytes: int
    """Budget of the receiver; the sender's is ``BUDGET_BYTES``."""
    receiver_held_bytes: int
    """Bytes that the receiver held at most, by its own count; the sender's follows."""
    sender_held_bytes: int
    receiver_grown_bytes: int
    """Growth of the receiver's resident memory; the sender's follows."""
    sender_grown_bytes: int

    @property
    def excesses(self) -> Sequence[str]:
        """The exceeded bounds, one line each: the budget, and twice that plus a margin for the growth of a process."""
        read_buffers = self.window_bytes // self.message_bytes * _READ_BUFFER_BYTES
        receiver_growth = 2 * self.window_bytes + read_buffers + _SPARE_BYTES
        bounds = (
            ("the receiver held", self.receiver_held_bytes, self.window_bytes),
            ("the sender held", self.sender_held_bytes, BUDGET_BYTES),
            ("the receiver's process grew by", self.receiver_grown_bytes, receiver_growth),
            ("the sender's process grew by", self.sender_grown_bytes, 2 * BUDGET_BYTES + _SPARE_BYTES),
        )
        return [f"{what} {found} bytes, and its bound is {most}" for what, found, most in bounds if found > most]


def measure_stall(tokens: int) -> StallMeasurement:
    """Send to a reader that is stalled until nothing moves.  Raises InfraError if a process fails."""
    with start_module("stalled_reader", tokens) as process:
        return StallMeasurement(**read_output(process))


def stall_trajectory_count(tokens: int) -> int:
    """Return a number of trajectories that exceeds all buffers on the way: the sender's, ZeroMQ's on both sides, the
    kernel's."""
    size = payload_bytes(tokens)
    return 2 * ((BUDGET_BYTES + 2 * HIGH_WATER * size + _KERNEL_BYTES) // size) + 64


def count_pubsub_losses(tokens: int) -> int:
    """Return the number of messages that PUB/SUB loses with a stalled reader for the same amount of data."""
    number = stall_trajectory_count(tokens)
    with zmq.Context[zmq.Socket[bytes]]() as context, context.socket(zmq.SUB) as socket:
        socket.subscribe(b"")
        socket.rcvtimeo = int(TIMEOUT_S * 1000)
        endpoint = bind_to_loopback(socket)
        with start_module("sender", "pubsub", endpoint, tokens, number) as process:
            time.sleep(STALL_S)
            arrived = 0
            while socket.recv_multipart(copy=False)[0].bytes:
                arrived += 1
            read_output(process)
    return number - arrived
