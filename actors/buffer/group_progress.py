"""What the buffer tells those who wait for groups to close."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.journal import ClosedGroup, Journal


@dataclass(frozen=True, slots=True)
class GroupProgress:
    seq: int
    """Pass it as ``seen`` next time."""
    closed: tuple[ClosedGroup, ...]
    """Groups that closed since ``seen``, in order."""
    dropped: int
    """Groups closed for no use: zero variance, too few members."""
    passed_over: int
    """Groups whose batch had no token to train."""
    ready: int


def read_group_progress(journal: Journal, seen: int) -> GroupProgress:
    """What closed after the ``seen``-th closing, at most a thousand; ``seen`` −1 asks where the count stands, without
    the past."""
    closed = journal.list_closed_since(seen) if seen >= 0 else []
    now = journal.statistics()
    seq = closed[-1].seq if closed else seen if seen >= 0 else now.seq
    return GroupProgress(seq, tuple(closed), now.dropped, now.passed_over, now.ready)
