"""The typed seam to ZeroMQ's sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import cast

import zmq
import zmq.asyncio


def send(socket: zmq.asyncio.Socket, frames: list[bytes], flags: int = 0) -> Awaitable[object]:
    return socket.send_multipart(frames, flags)  # pyright: ignore[reportUnknownMemberType]  # pyzmq's Sequence is bare


def send_now(socket: zmq.asyncio.Socket, frames: list[bytes]) -> bool:
    """Send without waiting; False if that is not possible."""
    sent = cast("asyncio.Future[object]", send(socket, frames, zmq.NOBLOCK))
    return sent.done() and sent.exception() is None


def watch_connection(socket: zmq.asyncio.Socket) -> None:
    """Let ZeroMQ notice a peer that is gone without a word, and connect again."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10000)
    socket.setsockopt(zmq.HEARTBEAT_TTL, 10000)
