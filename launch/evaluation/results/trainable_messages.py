"""Makes an attempt's conversation one that ``longshore sft --data`` takes (:mod:`launch.data.conversations`).  Pure.

The reader refuses a reply that says nothing, a call without a name, an assistant's message that comes first, and two in
a row, and a file ends at its first refused record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile, groupby
from typing import NamedTuple, NotRequired, cast

from actors.tokens.chat_messages import ChatMessage
from protocol.events import JsonValue

GAP = "gap"
"""Key of a trajectory, as ``--save-trajectories`` writes it, with the reason why its conversation is not whole."""


class RecordedMessage(ChatMessage):
    """A message of an attempt."""

    train: NotRequired[bool]
    """False for a reply that is not in the conversation as the model wrote it, which has no loss then."""


class NoSample(NamedTuple):
    """An attempt of which no sample can be made."""

    reason: str
    """Continues "…, because"."""


NOT_GRADED = NoSample("there is no verdict")


def find_conversation(trajectory: Mapping[str, JsonValue]) -> list[RecordedMessage] | NoSample:
    """Return the conversation of a trajectory, as ``--save-trajectories`` writes it, as the reader takes it."""
    if gap := trajectory.get(GAP):
        return NoSample(f"the harness's conversation cannot be read: {gap}")
    if not (messages := trajectory.get("messages")):
        return NoSample("there is no reply of a model")
    return trainable_messages(cast("list[RecordedMessage]", messages)) or NoSample("no reply can be learned from")


def trainable_messages(messages: Iterable[RecordedMessage]) -> list[RecordedMessage]:
    """Return the conversation as the reader takes it, or an empty list if there is no reply to learn from.

    Left out are a reply without text, thoughts and calls, a call without a name with its result, and what is the
    assistant's before anything else.  What is left of a reply with such a call has no loss.
    """
    named = _leave_out_unnamed_calls(_join_replies(messages))
    kept = list(_join_replies(message for message in named if not _is_empty_reply(message)))
    kept = list(dropwhile(lambda message: message["role"] in {"assistant", "tool"}, kept))
    return kept if any(_has_loss(message) for message in kept) else []


def _has_loss(message: RecordedMessage) -> bool:
    return message["role"] == "assistant" and message.get("train", True)


def _is_empty_reply(message: RecordedMessage) -> bool:
    says = message["content"].strip() or message.get("reasoning_content") or message.get("tool_calls")
    return message["role"] == "assistant" and not says


def _leave_out_unnamed_calls(messages: Iterable[RecordedMessage]) -> Iterator[RecordedMessage]:
    """Yield the messages without calls that have no name; the results of a reply are in the order of its calls."""
    has_name: Iterator[bool] = iter(())
    for message in messages:
        if message["role"] == "tool":
            if next(has_name, True):
                yield message
            continue
        if message["role"] == "assistant":
            calls = message.get("tool_calls", [])
            has_name = iter([bool(call["function"]["name"]) for call in calls])
            named = [call for call in calls if call["function"]["name"]]
            if len(named) < len(calls):
                yield {**message, "tool_calls": named, "train": False}
                continue
        yield message


def _join_replies(messages: Iterable[RecordedMessage]) -> Iterator[RecordedMessage]:
    """Yield the messages with consecutive ones of the assistant as one."""
    for role, group in groupby(messages, lambda message: message["role"]):
        if role == "assistant":
            yield _joined([*group])
        else:
            yield from group


def _joined(replies: Sequence[RecordedMessage]) -> RecordedMessage:
    if len(replies) == 1:
        return replies[0]
    joined: RecordedMessage = {"role": "assistant", "content": "\n".join(_texts(each["content"] for each in replies))}
    if thoughts := "\n".join(_texts(each.get("reasoning_content", "") for each in replies)):
        joined["reasoning_content"] = thoughts
    if calls := [call for each in replies for call in each.get("tool_calls", ())]:
        joined["tool_calls"] = calls
    if not all(map(_has_loss, replies)):
        joined["train"] = False
    return joined


def _texts(texts: Iterable[str]) -> Iterator[str]:
    return filter(None, texts)
