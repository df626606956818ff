"""Recovers messages from the token ids that a chat template produced, as runs store nothing else.

The template renders probe messages with known contents; the text around the probes is the template's own, and what
stands between the same pieces in a recorded prompt are the contents of the recorded messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage
from protocol.errors import UserError

_PROBE = "\u2063probe{}\u2063"
_OPENINGS = (("system", "user"), ("user",))
"""Possible roles of a first prompt, in the order in which they are tried."""

_Render = Callable[[Sequence[ChatMessage]], list[int]]


class TemplateInverter:
    """Inverts the chat template of one model."""

    def __init__(self, chat: ChatFormat) -> None:
        self._chat = chat
        self._known: dict[tuple[str, tuple[str, ...]], list[str] | None] = {}

    def recover_opening(self, ids: Sequence[int]) -> tuple[ChatMessage, ...]:
        """Return the messages of a first prompt; one message with all its text if the template cannot be inverted."""
        text = self._text(ids)
        for roles in _OPENINGS:
            if found := _between(text, self._pieces("opening", roles, self._chat.encode_first_prompt), roles):
                return found
        return ({"role": "user", "content": text},)

    def recover_messages(self, ids: Sequence[int], roles: Sequence[str]) -> tuple[ChatMessage, ...]:
        """Return the messages that follow a reply, given their ``roles``.  ``ids`` may begin before them."""
        text = self._text(ids[1:] if ids and ids[0] in self._chat.stop_ids else ids)
        pieces = self._pieces(
            "observation", tuple(roles), lambda messages: self._chat.encode_delta(messages, closed=True)
        )
        if pieces and not text.startswith(pieces[0]) and (at := text.rfind(pieces[0])) >= 0:
            text = text[at:]
        return _between(text, pieces, roles) or ({"role": roles[0] if roles else "user", "content": text},)

    def _pieces(self, kind: str, roles: tuple[str, ...], render: _Render) -> list[str] | None:
        """Return the template's text before, between and after messages of ``roles``; None if it accepts no such
        messages."""
        key = kind, roles
        if key not in self._known:
            self._known[key] = self._probe(roles, render) if roles else None
        return self._known[key]

    def _probe(self, roles: tuple[str, ...], render: _Render) -> list[str] | None:
        probes = [_PROBE.format(number) for number in range(len(roles))]
        try:
            text = self._text(
                render([{"role": role, "content": probe} for role, probe in zip(roles, probes, strict=True)])
            )
        except UserError:
            return None
        pieces: list[str] = []
        for probe in probes:
            before, found, text = text.partition(probe)
            if not found:
                return None
            pieces.append(before)
        return [*pieces, text]

    def _text(self, ids: Sequence[int]) -> str:
        return self._chat.tokenizer.decode([*ids], skip_special_tokens=False)


def _between(text: str, pieces: list[str] | None, roles: Sequence[str]) -> tuple[ChatMessage, ...]:
    """Return the texts between the pieces as messages; none if ``text`` does not contain the pieces."""
    if pieces is None:
        return ()
    found = re.fullmatch("(.*?)".join(map(re.escape, pieces)), text, re.DOTALL)
    if found is None:
        return ()
    return tuple({"role": role, "content": content} for role, content in zip(roles, found.groups(), strict=True))
