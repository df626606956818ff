"""The program with which an agent's reply ends, in tasks that take one instead of a file."""

from __future__ import annotations

import re

_FENCE = re.compile(r"(?P<indent>\s*)(?P<marks>`{3,}|~{3,})\s*+(?P<language>\w*+)\s*+")
_PYTHON = frozenset(("python", "python3", "py"))


def find_program_at_end(reply: str) -> str | None:
    """Return the text of the fenced block of Python with which a reply ends; None if it ends with anything else.

    A block that an example of its own use follows is no answer.  Lines lose the indentation of their fence, which a
    block in a list has.  Linear in the length of the reply.
    """
    lines = reply.rstrip().split("\n")
    closing = _FENCE.fullmatch(lines[-1])
    if closing is None or closing["language"]:
        return None
    for at in range(len(lines) - 2, -1, -1):
        fence = _FENCE.fullmatch(lines[at])
        if fence is not None and fence["marks"] == closing["marks"]:
            if fence["language"].lower() not in _PYTHON:
                return None
            indent = re.compile(rf"[ \t]{{0,{len(fence['indent'])}}}(.*)", re.DOTALL)
            return "".join(indent.sub(r"\1\n", line, 1) for line in lines[at + 1 : -1])
    return None
