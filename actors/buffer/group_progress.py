"""Progress report of the buffer to callers that wait for groups to close."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.journal import ClosedGroup, Journal


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """Groups that have closed, and groups that are ready for a step."""

    seq: int
    """The number of the newest closing; pass it as ``seen`` next time."""
    closed: tuple[ClosedGroup, ...]
    """Groups that closed since ``seen``, in order."""
    dropped: int
    """Number of groups that closed without use: no reward variance, or too few members."""
    passed_over: int
    """Number of groups whose batch had no token to train."""
    ready: int
    """Number of groups that are ready and not trained."""


def read_group_progress(journal: Journal, seen: int) -> GroupProgress:
    """Return what closed after the ``seen``-th closing, at most a thousand groups; −1 asks for the current count
    without the past."""
    closed = journal.list_closed_since(seen) if seen >= 0 else []
    now = journal.statistics()
    seq = closed[-1].seq if closed else seen if seen >= 0 else now.seq
    return GroupProgress(seq, tuple(closed), now.dropped, now.passed_over, now.ready)
