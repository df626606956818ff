"""A model's thoughts, ``<think>…</think>``, at the beginning of a reply.  Tool calls inside them are not run."""

from __future__ import annotations

from typing import NamedTuple

THINK_START, THINK_END = "<think>", "</think>"
UNCLOSED_REASONING = "the reply ends inside its thoughts: think less, end them, and then act"
"""Error for a reply whose thoughts are not closed."""


class SplitReply(NamedTuple):
    """A reply divided into thoughts and answer."""

    thoughts: str
    answer: str
    closed: bool
    """Whether the thoughts end; if they do not, there is no answer."""


def opens_reasoning(prompt: str) -> bool:
    """Return whether a prompt ends inside thoughts, as some chat templates' prompts do."""
    return prompt.rstrip().endswith(THINK_START)


def split_reasoning(reply: str, *, opened: bool = False) -> SplitReply:
    """Divide a reply into thoughts and answer; ``opened`` is True if the prompt has already begun the thoughts."""
    if not opened and not reply.lstrip().startswith(THINK_START):
        return SplitReply("", reply, closed=True)
    thoughts, end, answer = reply.partition(THINK_END)
    return SplitReply(thoughts.strip().removeprefix(THINK_START).strip(), answer.lstrip("\n"), closed=bool(end))


def strip_reasoning(reply: str) -> str | None:
    """Return a reply without its thoughts; None if they do not end."""
    split = split_reasoning(reply)
    return split.answer if split.closed else None
