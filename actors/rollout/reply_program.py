"""The program with which an agent's reply ends, in tasks that take one instead of a file."""

from __future__ import annotations

import re

_FENCE = re.compile(r"\s*(`{3,})\s*(\w*)\s*")
_PYTHON = frozenset(("python", "python3", "py"))


def find_program_at_end(reply: str) -> str | None:
    """Return the text of the fenced block of Python with which a reply ends; None if it ends with anything else.

    A block that an example of its own use follows is no answer.  Linear in the length of the reply.
    """
    lines = reply.rstrip().split("\n")
    closing = _FENCE.fullmatch(lines[-1])
    if closing is None or closing[2]:
        return None
    for at in range(len(lines) - 2, -1, -1):
        fence = _FENCE.fullmatch(lines[at])
        if fence is not None and fence[1] == closing[1]:
            return "".join(f"{line}\n" for line in lines[at + 1 : -1]) if fence[2].lower() in _PYTHON else None
    return None
