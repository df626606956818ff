"""``python -m launch.bench.transport.stalled_reader TOKENS``: a reader that stalls.

It starts a sender of more data than all buffers hold, reads nothing until nothing moves, and then everything.  It
prints one JSON object: the number of losses, and the bytes that either process held at most and grew by.  Both
processes are fresh and do nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict

import orjson

from launch.bench.process_memory import peak_bytes
from launch.bench.transport.backpressure import STALL_S, StallMeasurement, stall_trajectory_count
from launch.bench.transport.receivers import open_receiver
from launch.bench.transport.subprocesses import TIMEOUT_S, poll_until, read_output, start_module
from launch.bench.transport.workload import payload_bytes
from protocol.journal import AppendOutcome
from protocol.stream import ReceivedTrajectory


async def measure_stalled_reader(tokens: int) -> StallMeasurement:
    """Measure.  Raises InfraError if the sender fails, TimeoutError if it does not finish."""
    before, size, number = peak_bytes(), payload_bytes(tokens), stall_trajectory_count(tokens)
    names, moving = set[str](), asyncio.Event()
    most = 0

    async def append(items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
        nonlocal most
        await moving.wait()
        most = max(most, receiver.statistics().pending_bytes)
        names.update(item.summary.request.trajectory_id for item in items)
        return [AppendOutcome.APPENDED] * len(items)

    async with open_receiver(append) as receiver:
        with start_module("sender", "all_at_once", receiver.endpoint, tokens, number) as process:
            async with asyncio.timeout(TIMEOUT_S):
                await poll_until(
                    lambda: (
                        receiver.statistics().pending_bytes + size > receiver.window_bytes or process.poll() is not None
                    )
                )
                await asyncio.sleep(STALL_S)
                moving.set()
                await poll_until(lambda: len(names) == number or process.poll() is not None)
            result = await asyncio.to_thread(read_output, process)
    return StallMeasurement(
        lost=number - len(names),
        message_bytes=size,
        window_bytes=receiver.window_bytes,
        receiver_held_bytes=most,
        receiver_grown_bytes=peak_bytes() - before,
        sender_held_bytes=result["held_bytes"],
        sender_grown_bytes=result["grown_bytes"],
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(asdict(asyncio.run(measure_stalled_reader(int(sys.argv[1]))))) + b"\n")
