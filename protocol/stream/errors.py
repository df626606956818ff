"""Errors of sending a trajectory."""

from __future__ import annotations

from protocol.errors import InfraError
from protocol.stream.messages import RefusalReason


class StreamError(InfraError):
    """A trajectory was not acknowledged."""


class MessageRefusedError(StreamError):
    """The receiver refuses this trajectory or this sender; sending again does not help."""

    def __init__(self, reason: RefusalReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"the buffer refused it ({self.reason}): {self.detail}"


class NotAcknowledgedError(StreamError):
    """There was no answer within the deadline.  The trajectory may or may not be in the journal."""


class SenderClosedError(StreamError):
    """The sender was closed first.  The trajectory may or may not be in the journal."""
