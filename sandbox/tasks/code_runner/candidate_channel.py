"""The judge's end of the channel to a loaded program: one request and its reply, within the time limit of a case.

Runs in the sandbox, on any Python from 3.9.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from sandbox.tasks.code_runner.candidate_server import receive, send
from sandbox.tasks.code_runner.proxies import CandidateError

CASE_TIMEOUT_S = 10.0
"""Maximum seconds of one request, with the callbacks that it makes."""
MAX_REPLY_BYTES = 16 << 20
_NO_REPLY = (OSError, EOFError, ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError)
_LENGTHS = {"value": 3, "error": 5, "callback": 4}
"""Number of elements of each kind of message."""


class CandidateChannel:
    """Sends requests and receives their replies.  Not thread-safe."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline_s = 0.0
        self._depth = 0
        """Number of requests in progress: a callback may make another one."""

    def close(self) -> None:
        """Close the channel, which ends the program's loop."""
        self._connection.close()

    def request(self, what: str, packed: list[Any], run_callback: Callable[..., list[Any]]) -> list[Any]:
        """Send a request and return the reply, a ``value`` or an ``error``.

        ``run_callback`` answers the program's calls of the tests' functions.  Raises CandidateError, and closes the
        channel, when no valid reply comes in time.
        """
        if not self._depth:
            self._deadline_s = time.monotonic() + CASE_TIMEOUT_S
        self._depth += 1
        try:
            return self._receive_reply(["do", what, packed], run_callback)
        except _NO_REPLY as error:
            self._connection.close()
            raise CandidateError(f"{what}: {type(error).__name__}: {error}") from error
        finally:
            self._depth -= 1

    def _receive_reply(self, message: list[Any], run_callback: Callable[..., list[Any]]) -> list[Any]:
        while True:
            self._connection.settimeout(self._remaining_s())
            send(self._connection, message)
            reply = receive(self._read, MAX_REPLY_BYTES)
            if _LENGTHS.get(str(reply[0])) != len(reply):
                raise ValueError("no answer")
            if reply[0] != "callback":
                return reply
            message = run_callback(*reply[1:])

    def _read(self, max_bytes: int) -> bytes:
        self._connection.settimeout(self._remaining_s())
        return self._connection.recv(max_bytes)

    def _remaining_s(self) -> float:
        remaining_s = self._deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        return remaining_s
