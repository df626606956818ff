"""Strangers and a worker that has lost its mind connect to the buffer, again and again.

If this fails, a flood ends the buffer, and with it the run."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from protocol.journal import AppendOutcome
from protocol.stream import TrajectorySender
from tests.support.runs.trajectories import RUN, make_trajectory
from tests.support.stream_keys import RECEIVER_KEYS, SENDER_KEYS

SOON_S = 120.0
FLOODS, MESSAGES = 600, 2000
"""Floods, and the messages of each: more than a queue of ZeroMQ holds by default."""
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01"
RECEIVER = """
import asyncio, sys
from protocol.journal import AppendOutcome
from protocol.stream import CurveServer, TrajectoryReceiver

async def append(items):
    return [AppendOutcome.APPENDED] * len(items)

async def main():
    public, secret, client = (key.encode() for key in sys.argv[1:])
    keys = CurveServer(public, secret, frozenset({client}))
    async with TrajectoryReceiver("test-run", append, curve=keys) as receiver:
        print(receiver.endpoint, flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@contextmanager
def receiver_process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    keys = (RECEIVER_KEYS.public, RECEIVER_KEYS.secret, SENDER_KEYS.public)
    command = [sys.executable, "-c", RECEIVER, *(key.decode() for key in keys)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def flood_with_keys(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
    """Send many small messages and leave at once."""
    with context.socket(zmq.DEALER) as flood:
        flood.curve_publickey, flood.curve_secretkey = SENDER_KEYS.public, SENDER_KEYS.secret
        flood.curve_serverkey = SENDER_KEYS.server
        flood.set_hwm(0)
        flood.linger = 100
        flood.connect(endpoint)
        for _ in range(MESSAGES):
            flood.send(b"x")


def disturb_without_keys(endpoint: str, number: int) -> None:
    """Connect and say too little, too much, or something else."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    words = (
        b"",
        GREETING,
        secrets.token_bytes(512),
        b"GET / HTTP/1.1\r\n\r\n",
        GREETING + b"NULL" + bytes(48) + b"\xff" * 64,
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(words[number % len(words)])


def count_descriptors(process: subprocess.Popen[str]) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


@pytest.mark.slow
async def test_ten_thousand_hostile_connections_end_nothing() -> None:
    with receiver_process() as (process, endpoint), zmq.Context() as context:
        before = count_descriptors(process)
        for number in range(10_000):
            if number < FLOODS:
                flood_with_keys(context, endpoint)
            else:
                disturb_without_keys(endpoint, number)
            assert process.poll() is None, f"it ended with {process.returncode} after {number} connections"
        async with TrajectorySender(endpoint, RUN, "worker-0", curve=SENDER_KEYS) as sender:
            assert await sender.send(make_trajectory(), SOON_S) is AppendOutcome.APPENDED
        assert count_descriptors(process) < before + 1000
        assert process.poll() is None
