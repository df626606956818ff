"""A reply of which only the first call may be used, in every family.  If these fail, a harness that runs one call at a
time gets two, or the gateway stands still while it looks for the first."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from actors.agents.agent import AgentToolCall
from actors.agents.sglang_formats import call_format
from actors.gateway.completion import CompletionReading, cut_after_first_call
from tests.support.actors.native_calls import ARGUMENTS, NATIVE_CALLS, SHELL
from tests.support.fakes.fake_policy import make_reply

CALLS = {
    **NATIVE_CALLS,
    "hermes": "\n".join(
        f"<tool_call>\n{json.dumps({'name': 'shell', 'arguments': each})}\n</tool_call>" for each in ARGUMENTS
    ),
}
COMPACT = "".join(f"[TOOL_CALLS]shell[ARGS]{json.dumps(each)}" for each in ARGUMENTS)
BARE = CALLS["llama3"].removeprefix("<|python_tag|>")
THOUGHTS = "<think>\nI could </tool_call> }\n</think>\n\n"
CASES = [
    (family, before, calls)
    for family, calls in [*CALLS.items(), ("mistral", COMPACT), ("llama3", BARE)]
    for before in ("", "I look.\n", THOUGHTS)
    if calls != BARE or before != "I look.\n"
]


class CountedTexts:
    """The texts of one id per character, and how often they were asked for."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, ids: Sequence[int]) -> str:
        self.count += 1
        return "".join(map(chr, ids))


def reading(family: str, text_of: CountedTexts) -> CompletionReading:
    return CompletionReading(
        text_of=text_of,
        stops=(),
        starts_in_thinking=False,
        may_call=True,
        calls=call_format(family),
        tools=[SHELL],
    )


@pytest.mark.parametrize(("family", "before", "calls"), CASES)
def test_a_reply_is_cut_after_its_first_call(family: str, before: str, calls: str) -> None:
    said = f"{before}{calls} and more"
    reply, parsed = cut_after_first_call(make_reply([*map(ord, said)], 1), reading(family, text_of := CountedTexts()))
    kept = text_of(reply.token_ids)
    assert said.startswith(kept)
    assert len(reply.logprobs) == len(reply.versions) == len(reply.token_ids)
    assert "3" in kept
    assert "pwd" not in kept
    assert reply.finish == "stop"
    assert parsed.tool_calls == (AgentToolCall("shell", ARGUMENTS[0]),)
    assert parsed.content == before.removeprefix(THOUGHTS).strip()
    assert text_of.count < 20


def test_a_marker_inside_of_the_first_call_does_not_end_it() -> None:
    call = '<tool_call>{"name": "shell", "arguments": {"command": "</tool_call>"}}</tool_call>'
    reply, parsed = cut_after_first_call(
        make_reply([*map(ord, call * 2)], 1), reading("hermes", text_of := CountedTexts())
    )
    assert text_of(reply.token_ids) == call
    assert parsed.tool_calls == (AgentToolCall("shell", {"command": "</tool_call>"}),)
