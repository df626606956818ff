"""Frames that PID 1 may not have got yet, so that a new stream can bring those that the old one lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from sandbox.session import wire


class ResendBuffer:
    """In their order.  Pure.  A client counts its requests upwards, and PID 1 takes them in turn: an answer to one says
    that all before it have come."""

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes]] = deque()

    def add(self, frame: bytes) -> None:
        self._frames.append((wire.request_of(frame), frame))

    def acknowledge(self, request: int) -> None:
        """PID 1 has taken this request, and with it those before."""
        while self._frames and self._frames[0][0] <= request:
            self._frames.popleft()

    def clear(self) -> None:
        self._frames.clear()

    def __iter__(self) -> Iterator[bytes]:
        return iter([frame for _, frame in self._frames])

    def __len__(self) -> int:
        return len(self._frames)
