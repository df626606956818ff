"""Keeps the frames that PID 1 may not have received, so that a new stream can send them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from sandbox.session.init_connection import init_requests


class ResendBuffer:
    """Unacknowledged frames in their order.

    A client's request ids increase and PID 1 handles requests in order, so that an answer to one acknowledges all
    before it.
    """

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes]] = deque()

    def add(self, frame: bytes) -> None:
        """Append a frame."""
        self._frames.append((init_requests.request_id_of(frame), frame))

    def acknowledge(self, request: int) -> None:
        """Drop the frames up to this request: PID 1 has received them."""
        while self._frames and self._frames[0][0] <= request:
            self._frames.popleft()

    def clear(self) -> None:
        """Drop all frames."""
        self._frames.clear()

    def __iter__(self) -> Iterator[bytes]:
        return iter([frame for _, frame in self._frames])

    def __len__(self) -> int:
        return len(self._frames)
