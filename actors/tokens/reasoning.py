"""Where a reply's thoughts end.  What a model thinks about calling is not called."""

from __future__ import annotations

THINK_START, THINK_END = "<think>", "</think>"


def strip_reasoning(reply: str) -> str | None:
    """What a reply says when it has thought; None where its thoughts do not end."""
    if not reply.lstrip().startswith(THINK_START):
        return reply
    _, end, said = reply.partition(THINK_END)
    return said.lstrip("\n") if end else None


UNCLOSED_REASONING = f"the reply ends inside its thoughts, without {THINK_END}: think less, and then act"
"""What is wrong with one of which nothing is said."""
