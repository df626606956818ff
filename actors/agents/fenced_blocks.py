"""Markdown blocks between lines of three backticks."""

from __future__ import annotations

from typing import NamedTuple

_FENCE = "```"


class FencedBlock(NamedTuple):
    """One block and the language that its first line names."""

    language: str
    body: str


class UnclosedBlockError(Exception):
    """A block has no end: the lines of backticks do not come in pairs."""


def parse_fenced_blocks(text: str) -> list[FencedBlock]:
    """Return the blocks in order.  Raises :class:`UnclosedBlockError`, so half of a command is never taken for one."""
    found: list[FencedBlock] = []
    inside: FencedBlock | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        mark = line.strip()
        if inside is None and mark.startswith(_FENCE) and "`" not in mark[len(_FENCE) :]:
            inside, lines = FencedBlock(mark[len(_FENCE) :].strip(), ""), []
        elif inside is not None and mark == _FENCE:
            found.append(inside._replace(body="\n".join(lines)))
            inside = None
        else:
            lines.append(line)
    if inside is not None:
        raise UnclosedBlockError
    return found
