"""The interface to the record of a lease's operations, which survives the server's process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from sandbox.http.messages import HttpReply


class KnownOperation(NamedTuple):
    """An operation that may be requested again."""

    key: str
    """``exec_tool/<request id>``, or ``exec_tool#<number>`` for a request without id."""
    digest: str
    reply: HttpReply | None
    """None until the operation has ended."""


class OperationRecord(Protocol):
    """Record of operations that survives the server's process."""

    @property
    def is_long(self) -> bool:
        """True if the record should be rewritten."""
        ...

    def begin(self, key: str, digest: str) -> None:
        """Record that an operation begins. Raises InfraError when it cannot be written."""
        ...

    def end(self, key: str, reply: HttpReply) -> None:
        """Record an operation's reply. Raises InfraError."""
        ...

    def delivered(self, key: str) -> None:
        """Record that no client will request the operation again. Raises InfraError."""
        ...

    def rewrite(self, known: Iterable[KnownOperation]) -> None:
        """Keep only these operations. Raises InfraError."""
        ...
