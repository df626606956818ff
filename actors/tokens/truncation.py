"""Truncation of text and prompts by their number of tokens; the beginning and the end are kept."""

from __future__ import annotations

from collections.abc import Sequence

from actors.tokens.control_tokens import ControlTokens

_HALF_A_CHARACTER = "\ufffd"
OMITTED_MIDDLE = "\n[OMITTED MIDDLE]\n"
"""OpenClaw's marker in a prompt."""


def truncate_text(tokens: ControlTokens, text: str, max_tokens: int) -> str:
    """Return ``text``, or its first and last tokens with a marker between them that counts the omitted ones.

    The result has at most ``max_tokens`` tokens, if the marker fits in them; no character is cut in half."""
    ids = tokens.encode(tokens.disarm(text))
    room = max_tokens if len(ids) > max_tokens else 0
    while room:
        head, tail = (room + 1) // 2, room // 2
        begin = tokens.decode(ids[:head]).rstrip(_HALF_A_CHARACTER)
        end = tokens.decode(ids[len(ids) - tail :]).lstrip(_HALF_A_CHARACTER)
        made = f"{begin}\n... [{len(ids) - room} tokens left out] ...\n{end}"
        excess = len(tokens.encode(tokens.disarm(made))) - max_tokens
        if excess <= 0:
            return made
        room = max(0, room - excess)
    return text if len(ids) <= max_tokens else f"... [{len(ids)} tokens left out] ..."


def drop_middle(ids: Sequence[int], max_tokens: int, *, head_share: float, mark: Sequence[int]) -> list[int]:
    """Return ``ids``, or at most ``max_tokens`` ids: the first, then ``mark``, then the last.

    ``head_share`` is the share of the kept tokens that come from the beginning."""
    if len(ids) <= max_tokens:
        return list(ids)
    room = max(0, max_tokens - len(mark))
    head = int(room * head_share)
    return [*ids[:head], *mark, *ids[len(ids) - (room - head) :]]
