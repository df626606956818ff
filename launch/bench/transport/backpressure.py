"""What a reader that stands still costs: of ours nothing may be lost or held beyond its budget; of PUB/SUB much is."""

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
"""Of a TCP connection over loopback, both ends."""
_SPARE_BYTES = 32 << 20
"""That a process may grow by beside what it holds twice: Python's own arenas, and the callers who wait."""


@dataclass(frozen=True, slots=True)
class StallMeasurement:
    """What :mod:`launch.bench.transport.stalled_reader` has seen, in bytes."""

    lost: int
    """Trajectories."""
    window_bytes: int
    """The receiver's budget; the sender's is ``BUDGET_BYTES``."""
    receiver_held_bytes: int
    """By its own count, as the next one."""
    sender_held_bytes: int
    receiver_grown_bytes: int
    """Resident, as the next one."""
    sender_grown_bytes: int

    @property
    def excesses(self) -> Sequence[str]:
        """What is above its bound, one line each: the budget, and for what a process grew by twice that and a bit."""
        bounds = (
            ("the receiver held", self.receiver_held_bytes, self.window_bytes),
            ("the sender held", self.sender_held_bytes, BUDGET_BYTES),
            ("the receiver's process grew by", self.receiver_grown_bytes, 2 * self.window_bytes + _SPARE_BYTES),
            ("the sender's process grew by", self.sender_grown_bytes, 2 * BUDGET_BYTES + _SPARE_BYTES),
        )
        return [f"{what} {found} bytes, and its bound is {most}" for what, found, most in bounds if found > most]


def measure_stall(tokens: int) -> StallMeasurement:
    """Before a reader that stands still until nothing moves.  Raises InfraError where a process fails."""
    with start_module("stalled_reader", tokens) as process:
        return StallMeasurement(**read_output(process))


def stall_trajectory_count(tokens: int) -> int:
    """More trajectories than all buffers on the way hold together: the sender's, ZeroMQ's on both sides, the
    kernel's."""
    size = payload_bytes(tokens)
    return 2 * ((BUDGET_BYTES + 2 * HIGH_WATER * size + _KERNEL_BYTES) // size) + 64


def count_pubsub_losses(tokens: int) -> int:
    """Lost by PUB/SUB before a reader that stands still while as much is sent."""
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
