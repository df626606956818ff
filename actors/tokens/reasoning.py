"""Where a reply's thoughts end.  Tool calls inside them are not run."""

from __future__ import annotations

THINK_START, THINK_END = "<think>", "</think>"


def strip_reasoning(reply: str) -> str | None:
    """Return a reply without its thoughts; None if they do not end."""
    if not reply.lstrip().startswith(THINK_START):
        return reply
    _, end, rest = reply.partition(THINK_END)
    return rest.lstrip("\n") if end else None


UNCLOSED_REASONING = f"the reply ends inside its thoughts, without {THINK_END}: think less, and then act"
"""The error that is reported for such a reply."""
