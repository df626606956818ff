"""Decides which replies of a session are the agent's work.  Pure.

A harness also asks for what is no part of the work (a title, a topic, a safety check), and asks again where it does not
like a reply.  Only a finished session shows which replies these are: those with which nothing went on.

Whatever may have had an effect is work: a reply with a call, which the harness may have run even if it then forgets it;
one that a later request continues or quotes; and, where no request offers tools, each.

Another reply is **auxiliary** if its request offers no tools and another one does, has a system prompt of its own and
none of the assistant's messages.  So plans, the reports of helpers and summaries with which the work goes on are the
agent's.  It is **discarded** if its request offers tools, and the same prompt was asked again after it was there.

Of all replies whose requests offer tools (of all replies if none does) the last one is neither: some of the work always
remains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from protocol.trajectory import ReplyRole, Segment, TurnKind


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """The facts of a request that decide the role of its reply.  Replies are numbered as they ended."""

    conversation: bytes
    """Digest of tools and messages."""
    offers_tools: bool
    system_prompt: tuple[str, ...]
    """The system messages before all others."""
    has_replies: bool
    """True if one of its messages is the assistant's."""
    replies_before: int
    """Number of the session's replies that had ended when it was made."""
    continues: int | None
    """Number of the reply that its known part ends with."""
    quotes: frozenset[int] = frozenset()
    """Numbers of the replies that its new part quotes."""
    gets_call: bool = False
    """True if its reply has a call."""
    step: int = 0
    """Number of the task's step in which it was made: what a step asks again discards nothing of another."""


def find_reply_roles(requests: Sequence[AnsweredRequest]) -> list[ReplyRole]:
    """Return the role of each reply of a finished session, by the request that it answered."""
    work_prompts = {request.system_prompt for request in requests if request.offers_tools}
    continued = {request.continues for request in requests}
    quoted = {number for request in requests for number in request.quotes}
    asked_last: dict[tuple[int, bytes], int] = {}
    for request in requests:
        asked = request.step, request.conversation
        asked_last[asked] = max(request.replies_before, asked_last.get(asked, 0))

    def role(number: int, request: AnsweredRequest) -> ReplyRole:
        if request.gets_call or number in continued or number in quoted:
            return ReplyRole.WORK
        if request.offers_tools:
            is_asked_again = asked_last[request.step, request.conversation] > number
            return ReplyRole.DISCARDED if is_asked_again else ReplyRole.WORK
        is_aside = work_prompts and not request.has_replies and request.system_prompt not in work_prompts
        return ReplyRole.AUXILIARY if is_aside else ReplyRole.WORK

    return [role(number, request) for number, request in enumerate(requests)]


def mark_roles(
    segments: Iterable[Segment], roles: Iterable[ReplyRole], untrained: frozenset[ReplyRole]
) -> tuple[Segment, ...]:
    """Return ``segments`` with the role of each of the model's turns, in their order; those whose role is ``untrained``
    have no loss."""
    left = iter(roles)
    marked: list[Segment] = []
    for segment in segments:
        turns = tuple(turn._replace(role=next(left)) if turn.kind is TurnKind.MODEL else turn for turn in segment.turns)
        has_loss = segment.loss_mask.astype(np.bool_)
        for turn in turns:
            has_loss[turn.start : turn.end] &= turn.role not in untrained
        marked.append(
            replace(
                segment,
                loss_mask=has_loss.astype(np.uint8),
                logprobs=np.where(has_loss, segment.logprobs, np.float32(0)),
                versions=np.where(has_loss, segment.versions, np.int32(-1)),
                turns=turns,
            )
        )
    return tuple(marked)
