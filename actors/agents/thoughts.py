"""Where a reply's thoughts end.  What a model thinks about calling is not called."""

from __future__ import annotations

BEGIN, END = "<think>", "</think>"


def spoken(reply: str) -> str | None:
    """What a reply says when it has thought; None where its thoughts do not end."""
    if not reply.lstrip().startswith(BEGIN):
        return reply
    _, end, said = reply.partition(END)
    return said.lstrip("\n") if end else None


UNENDED = f"the reply ends inside its thoughts, without {END}: think less, and then act"
"""What is wrong with one of which nothing is said."""
