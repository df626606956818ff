"""If these fail, a harness that streams is told another reply than one that does not, or what is taken back later."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.agents.call_format import CallFormat
from actors.agents.hermes import HERMES
from actors.agents.sglang_formats import call_format
from actors.engines.messages import EngineUnavailable, GenerateReply, GenerateRequest, OnPartialReply, PartialReply
from actors.engines.routing.router import Router
from actors.gateway import anthropic_replies, openai_replies, responses_replies
from actors.gateway.api_types import ApiCall, ReplyEncoder, ResponseMetadata
from actors.gateway.chat_request import ChatRequest
from actors.gateway.completion import (
    CompletionEndReason,
    CompletionReading,
    GatewayCompletion,
    cut_at_stop,
)
from actors.gateway.partial_completion import PartialCompletion
from actors.tokens.reasoning import opens_reasoning
from tests.support.actors.engine_requests import make_request
from tests.support.fakes.fake_policy import make_reply

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>'
DEEPSEEK, LLAMA = call_format("deepseekv31"), call_format("llama3")
NATIVE_CALLS = [
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "é"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    '<|python_tag|>{"name": "f", "parameters": {"a": "é"}}',
]
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {}}}
OTHER_MARKS = [*NATIVE_CALLS, "{", "<｜tool▁calls▁begin｜>"]
MARKS = [CALL, "<think>", "</think>", "<tool_call>", "</tool_call>", "<thi", "nk>", "<too", "l_call>", "</", "<"]
REPLIES = st.lists(
    st.sampled_from(
        [*MARKS, *OTHER_MARKS, "a", "b", "ab", "STOP", "ST", " ", "\n", "\u3000", "é", "你好", "🙂", "\ufffd"]
    )
    | st.text(max_size=4),
    max_size=14,
).map(lambda pieces: "".join(pieces).encode()) | st.binary(max_size=12)
STOPS = st.lists(st.sampled_from(["STOP", "ab", "b", "abab", "</think>", "<tool_call>", "\n", "好"]), max_size=3)
"""None has the mark of an incomplete character, which a text has for a while and loses again."""
NAMED = ResponseMetadata("policy", 0, "id")


class Bytes:
    """A tokenizer whose tokens are any pieces of the reply's bytes, as byte-level BPE's are; the last is its end."""

    def __init__(self, content: bytes, cuts: Sequence[int]) -> None:
        places = sorted({0, len(content), *(place % (len(content) + 1) for place in cuts)})
        self._tokens = [content[start:end] for start, end in itertools.pairwise(places)] + [b""]
        self.ids = list(range(len(self._tokens)))

    def text(self, token_ids: Sequence[int]) -> str:
        return b"".join(self._tokens[token] for token in token_ids).decode(errors="replace")


def answered(sampled: Bytes, begun: PartialCompletion) -> GatewayCompletion:
    """The whole reply, as a session answers it."""
    reply, text, stop = cut_at_stop(make_reply(sampled.ids, 1), begun.reading)
    taken = begun.reading.parse(text)
    return GatewayCompletion(
        parsed=taken,
        end_reason=CompletionEndReason.TOOL_CALLS if taken.tool_calls else CompletionEndReason.END_OF_TURN,
        stop_text=stop,
        prompt_tokens=begun.prompt_tokens,
        sampled_tokens=len(reply.token_ids),
        cached_tokens=3,
    )


def streamed(
    replies: ReplyEncoder, call: ApiCall, sampled: Bytes, begun: PartialCompletion, seen: Sequence[int]
) -> tuple[bytes, bytes]:
    """All events, where so many tokens were seen on the way, and the reply that is not streamed."""
    events, answer = replies.stream_encoder(call, NAMED), answered(sampled, begun)
    body = b""
    for count in seen:
        on_the_way = replace(begun, token_ids=sampled.ids[:count])
        body += events.encode_partial(on_the_way.parse(), begun.prompt_tokens)
    return body + events.encode_end(answer), replies.encode_reply(call, answer, NAMED)


def events_in(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.decode().split("\n"):
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def put_together_by_openai(body: bytes) -> dict[str, Any]:
    """The choice and the usage, as clients put them together."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    *chunks, last = events_in(body)
    for number, event in enumerate(chunks):
        (choice,) = event["choices"]
        delta = choice["delta"]
        assert ("role" in delta) == (number == 0)
        for call in delta.pop("tool_calls", ()):
            if "id" in call:
                message["tool_calls"].append({**call, "function": {**call["function"], "arguments": ""}})
            message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        for field, text in delta.items():
            message[field] = message.get(field, "") + text
    return {"message": message, "finish": chunks[-1]["choices"][0]["finish_reason"], "usage": last["usage"]}


def whole_of_openai(body: bytes) -> dict[str, Any]:
    completion = json.loads(body)
    (choice,) = completion["choices"]
    message = {"reasoning_content": "", "tool_calls": [], **choice["message"]}
    message["content"] = message["content"] or ""
    for index, call in enumerate(message["tool_calls"]):
        call["index"] = index
    return {"message": message, "finish": choice["finish_reason"], "usage": completion["usage"]}


def put_together_by_anthropic(body: bytes) -> dict[str, Any]:
    """The message; each block is over before the next begins."""
    message: dict[str, Any] = {}
    blocks: list[dict[str, Any]] = []
    at = -1
    for event in events_in(body):
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                at += 1
                assert event["index"] == at == len(blocks)
                blocks.append(event["content_block"])
            case "content_block_delta":
                assert event["index"] == at
                (field, new), *_ = ((field, new) for field, new in event["delta"].items() if field != "type")
                if field == "partial_json":
                    blocks[at]["input"] = json.loads(new)
                else:
                    blocks[at][field] += new
            case "content_block_stop":
                assert event["index"] == at
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"], "content": blocks}
    assert event["type"] == "message_stop"
    return message


def put_together_by_responses(body: bytes) -> dict[str, Any]:
    """The last event's response, whose items are those of the events before; each is over before the next begins."""
    created, begun, *events, finished = events_in(body)
    assert [created["type"], begun["type"], finished["type"]] == [
        "response.created", "response.in_progress", "response.completed"
    ]  # fmt: skip
    assert [each["sequence_number"] for each in (*events, finished)] == list(range(2, len(events) + 3))
    texts: list[str] = []
    done: list[dict[str, Any]] = []
    for event in events:
        assert event["output_index"] == len(done)
        match event["type"].rpartition(".")[2]:
            case "added" if "item" in event:
                texts.append("")
            case "delta":
                texts[-1] += event["delta"]
            case "done" if "item" in event:
                done.append(event["item"])
            case _:
                pass
    assert texts == [item["content"][0]["text"] if "content" in item else item["arguments"] for item in done]
    assert done == finished["response"]["output"]
    return finished["response"]


CUT = {"said": REPLIES, "cuts": st.lists(st.integers(0, 99)), "seen": st.lists(st.integers(0, 99)).map(sorted)}


@pytest.mark.parametrize("calls", [HERMES, DEEPSEEK, LLAMA], ids=["hermes", "deepseekv31", "llama3"])
@settings(deadline=None)
@given(**CUT, stops=STOPS, opened=st.booleans(), may_call=st.booleans(), thoughts=st.booleans())
def test_any_streamed_reply_equals_the_whole_reply_however_it_is_split(
    calls: CallFormat,
    said: bytes,
    cuts: list[int],
    seen: list[int],
    stops: list[str],
    opened: bool,
    may_call: bool,
    thoughts: bool,
) -> None:
    spoken = Bytes(said, cuts)
    reading = CompletionReading(
        text_of=spoken.text, stops=stops, starts_in_thinking=opened, may_call=may_call, calls=calls, tools=[FUNCTION]
    )
    begun = PartialCompletion(prompt_tokens=9, reading=reading)
    call = ApiCall(request=ChatRequest(messages=[]), stream=True, thoughts=thoughts)
    stream, whole = streamed(openai_replies, call, spoken, begun, seen)
    assert put_together_by_openai(stream) == whole_of_openai(whole)
    stream, whole = streamed(anthropic_replies, call, spoken, begun, seen)
    assert put_together_by_anthropic(stream) == json.loads(whole)
    stream, whole = streamed(responses_replies, call, spoken, begun, seen)
    assert put_together_by_responses(stream) == json.loads(whole)


def told_after(text: str, *, stops: Sequence[str] = (), opened: bool = False, may_call: bool = True) -> tuple[str, str]:
    """Parse the reply received so far."""
    sampled = Bytes(text.encode(), ())
    reading = CompletionReading(text_of=sampled.text, stops=stops, starts_in_thinking=opened, may_call=may_call)
    begun = PartialCompletion(prompt_tokens=9, reading=reading, token_ids=sampled.ids[:1])
    return begun.parse().thoughts, begun.parse().content


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I look", ("", "I look")),
        ("I look. \n", ("", "I look.")),
        ("I look.<tool", ("", "I look.")),
        (f"I look.\n{CALL} and", ("", "I look.")),
        ("a < b", ("", "a < b")),
        ("a <", ("", "a")),
        ("<thi", ("", "")),
        ("<this", ("", "<this")),
        ("<think>\nI rea", ("I rea", "")),
        ("<think>\nI read </thi", ("I read", "")),
        ("<think>\nI read </think>\n\nyes", ("I read", "yes")),
        (" I look", ("", "")),
    ],
)
def test_text_that_can_no_longer_change_is_streamed_at_once(text: str, expected: tuple[str, str]) -> None:
    """Or the property above would hold of a stream that comes all at its end."""
    assert told_after(text) == expected


def test_a_possible_start_of_a_stop_string_is_held_back() -> None:
    assert told_after("abc ST", stops=["STOP", "never"], may_call=False) == ("", "abc ")
    assert told_after("abc STEP", stops=["STOP"], may_call=False) == ("", "abc STEP")
    assert told_after("abc STOP and", stops=["STOP"], may_call=False) == ("", "abc ")


def test_a_thought_opened_by_the_prompt_is_a_thought_from_the_first_token() -> None:
    assert opens_reasoning("<|im_start|>assistant\n<think>\n")
    assert not opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert told_after("I read", opened=True) == ("I read", "")
    assert told_after("I read</think>\nyes", opened=True) == ("I read", "yes")


def test_a_character_is_streamed_only_when_all_its_bytes_have_arrived() -> None:
    half = Bytes("né".encode(), [2])
    reading = CompletionReading(text_of=half.text, stops=(), starts_in_thinking=False, may_call=False)
    begun = PartialCompletion(prompt_tokens=9, reading=reading, token_ids=half.ids[:1])
    assert begun.parse().content == "n"


# -- over engines that die ---------------------------------------------------------------------------------------

FAILURES = st.sampled_from(["dies", "is unreachable", "hangs"])


class MortalEngine:
    """Tells some tokens and fails, so often; then it answers.  A token is its place in the reply and who sampled it, so
    that one which is sampled again shows."""

    name = "mortal"

    def __init__(self, lives: list[tuple[int, int, str]]) -> None:
        self._lives = lives
        self._attempts = 0

    async def generate(self, asked: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        assert watch is not None
        self._attempts += 1
        came = asked.resume_from
        if not self._lives:
            return make_reply(self._more(came, 2).token_ids, 1)
        sent, untold, failure = self._lives.pop(0)
        for _ in range(sent):
            came = self._more(came, 1)
            watch(came)
        if failure == "hangs":
            raise EngineUnavailable(failure, came)
        raise EngineUnavailable(failure, self._more(came, untold) if failure == "dies" else PartialReply([], [], []))

    def _more(self, came: PartialReply, count: int) -> PartialReply:
        ids = [1000 * self._attempts + len(came) + number for number in range(count)]
        return came.plus(PartialReply(ids, [-0.5] * count, [1] * count))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), FAILURES), max_size=6))
async def test_partial_replies_only_grow_even_if_engines_die(lives: list[tuple[int, int, str]]) -> None:
    async def no_pause(seconds: float) -> None:
        del seconds

    partials: list[list[int]] = [[]]
    router = Router([MortalEngine(lives)], pause=no_pause)
    reply = await router.generate(make_request([1], 99), lambda received: partials.append(received.token_ids))
    for before, after in zip(partials, [*partials[1:], reply.token_ids], strict=True):
        assert after[: len(before)] == before
