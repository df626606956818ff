"""The format of gpt-oss: a reply consists of messages, each with a channel, and a call is a message to a function.

``<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>commentary to=functions.shell
<|constrain|>json<|message|>{…}<|call|>``: the analysis is thoughts, the commentary to a function is a call, and all
else is text.  A reply that is anything else is malformed, and none of its calls runs.
https://github.com/openai/harmony
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from actors.agents.agent import AgentToolCall, MalformedAction
from actors.agents.call_format import CallSpan, ReadCalls
from actors.agents.json_objects import InvalidObjectError, read_json
from actors.tokens.reasoning import SplitReply

_RECIPIENT = r" to=(?P<{}>[^\s<]++)"
_MESSAGE = re.compile(
    rf"(?P<start><\|start\|>assistant)?(?:{_RECIPIENT.format('before')})?<\|channel\|>(?P<channel>analysis|commentary|final)"
    rf"(?:{_RECIPIENT.format('after')})?\s*+(?:(?:<\|constrain\|>)?(?P<type>\w++))?\s*+<\|message\|>"
    r"(?P<content>(?:[^<]|<(?!\|(?:start|channel|message|constrain|end|call|return)\|>))*+)(?:<\|(?:end|call|return)\|>|\Z)"
)
_FUNCTIONS = "functions."


@dataclass(frozen=True, slots=True)
class _Message:
    written: str
    channel: str
    recipient: str
    content_type: str
    content: str
    begin: int
    """Its place in the reply."""
    end: int

    def read_call(self) -> AgentToolCall | str:
        """Return the call that it is, or why it is none."""
        if self.channel != "commentary" or not self.recipient.startswith(_FUNCTIONS):
            return f"a message to {self.recipient} in the channel {self.channel} calls no function"
        if self.content_type != "json":
            return "a call's arguments are not called json"
        try:
            arguments = read_json(self.content)
        except InvalidObjectError as error:
            return f"arguments are not valid JSON ({error})"
        if not isinstance(arguments, dict):
            return "arguments are not a JSON object"
        return AgentToolCall(self.recipient.removeprefix(_FUNCTIONS), cast("dict[str, object]", arguments))


class HarmonyFormat:
    """gpt-oss' format as a :class:`CallFormat`."""

    name = "gpt-oss"
    marks = ()

    def split_thoughts(self, reply: str, *, opened: bool = False) -> SplitReply:
        """Divide a reply into the text of its analysis and its other messages."""
        del opened
        messages = _split(reply)
        if messages is None:
            return SplitReply("", reply, closed=True)
        thoughts = [each for each in messages if each.channel == "analysis" and not each.recipient]
        others = [each for each in messages if each not in thoughts]
        answer = "".join(each.written for each in others)
        return SplitReply("\n".join(each.content for each in thoughts), answer, closed=bool(others) or not thoughts)

    def read(self, text: str, tools: Sequence[object]) -> ReadCalls:
        """Read a reply after its thoughts; calls of other tools than ``tools`` are read too."""
        del tools
        messages = _split(text)
        if messages is None:
            return self._malformed("it does not consist of messages with a channel", text)
        calls = [each.read_call() for each in messages if each.recipient]
        if problem := next((each for each in calls if isinstance(each, str)), None):
            return self._malformed(problem, text)
        said = "\n".join(each.content for each in messages if not each.recipient)
        return ReadCalls([each for each in calls if isinstance(each, AgentToolCall)], said)

    def _malformed(self, problem: str, text: str) -> ReadCalls:
        return ReadCalls([MalformedAction(f"the reply is not in this model's format ({self.name}): {problem}")], text)

    def find_first_call(self, text: str) -> CallSpan:
        call = next(each for each in _split(text) or () if each.recipient)
        return CallSpan(call.begin, call.end)


HARMONY = HarmonyFormat()


def _split(text: str) -> list[_Message] | None:
    """Return a reply's messages; None if it does not consist of them."""
    messages: list[_Message] = []
    at = 0
    while at < len(text):
        found = _MESSAGE.match(text, at)
        if found is None or (at and not found["start"]):
            return None
        recipient = found["before"] or found["after"] or ""
        kind, content = found["type"] or "", found["content"]
        messages.append(_Message(found[0], found["channel"], recipient, kind, content, at, found.end()))
        at = found.end()
    return messages
