"""The official ``openai`` client against the gateway.  If these fail, a harness that speaks OpenAI's API cannot run, or
what it did is trained as something else."""

from __future__ import annotations

import asyncio
import json
import typing

import numpy as np
import openai
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from actors.engines.messages import EngineUnavailable, RequestRefused
from actors.gateway.openai_requests import OPENAI_OPTIONS, OpenAIChatRequest
from actors.tokens.chat_format import ChatFormat
from protocol.trajectory import EpisodeStatus, TurnKind
from tests.support.actors.gateways import GatewayClients, open_gateway
from tests.support.fakes.fake_policy import END, LS, FakeTokenizer

HELLO = [{"role": "system", "content": "sys"}, {"role": "user", "content": "hello"}]
TOOL = {
    "type": "function",
    "function": {"name": "shell", "description": "Run.", "parameters": {}, "strict": True},
}
CALL = '<tool_call>{"name": "shell", "arguments": {"command": "' + chr(LS) + '"}}</tool_call>'
"""Decodes to a command ``ls``; whoever tokenises that again gets other ids."""


def ids(text: str) -> list[int]:
    return [END if char == "\x01" else ord(char) for char in text]


async def ask(rig: GatewayClients, messages: list[object], **options: object) -> openai.types.chat.ChatCompletion:
    return await rig.openai.chat.completions.create(model="policy", messages=messages, **options)


async def test_a_whole_reply_is_returned_as_text_and_recorded_with_its_sampled_tokens() -> None:
    async with open_gateway(f"hi {chr(LS)}\x01") as made:
        completion = await ask(made, HELLO)
        (segment,) = made.session.segments()
    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason, choice.message.tool_calls) == ("hi ls", "stop", None)
    prompt = ids("<system>sys\x01\n<user>hello\x01\n<assistant>")
    assert made.engine.received_requests[0].input_ids == prompt
    assert made.engine.received_requests[0].temperature == 0.7
    assert segment.token_ids.tolist() == [*prompt, *ids(f"hi {chr(LS)}\x01")]
    assert segment.loss_mask.tolist() == [0] * len(prompt) + [1] * 5
    assert segment.logprobs[len(prompt) :].tolist() == [-0.5] * 5
    assert segment.versions.tolist() == [-1] * len(prompt) + [1] * 5
    assert completion.usage is not None
    usage = (completion.usage.prompt_tokens, completion.usage.completion_tokens, completion.usage.total_tokens)
    assert usage == (len(prompt), 5, len(prompt) + 5)


@pytest.mark.parametrize("with_usage", [True, False])
async def test_a_streamed_reply_equals_a_whole_reply(with_usage: bool) -> None:
    async with open_gateway("one two\x01") as made:
        options = {"stream_options": {"include_usage": True}} if with_usage else {}
        stream = await made.openai.chat.completions.create(model="m", messages=HELLO, stream=True, **options)
        chunks = [chunk async for chunk in stream]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "one two"
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    used = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage]
    assert used == ([8] if with_usage else [])
    assert len(made.session.segments()) == 1


async def test_tool_calls_are_returned_with_their_accompanying_text() -> None:
    async with open_gateway(f"I look.\n{CALL}{CALL}\x01") as made:
        (choice,) = (await ask(made, HELLO, tools=[TOOL])).choices
    assert (choice.message.content, choice.finish_reason) == ("I look.", "tool_calls")
    calls = choice.message.tool_calls or []
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("shell", {"command": "ls"})
    ] * 2
    assert len({call.id for call in calls}) == 2


async def test_the_official_client_assembles_streamed_tool_calls() -> None:
    async with (
        open_gateway(f"{CALL}{CALL}\x01") as made,
        made.openai.chat.completions.stream(model="m", messages=HELLO, tools=[TOOL]) as stream,
    ):
        completion = await stream.get_final_completion()
    (choice,) = completion.choices
    assert choice.finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments) for call in choice.message.tool_calls or []] == [{"command": "ls"}] * 2


async def converse(made: GatewayClients, *, stream: bool) -> list[object]:
    """A call, its result and the last word, as an agent's loop does it: the client's own message goes back."""
    messages: list[object] = [*HELLO]
    for _ in range(2):
        if stream:
            async with made.openai.chat.completions.stream(model="m", messages=messages, tools=[TOOL]) as events:
                message = (await events.get_final_completion()).choices[0].message
        else:
            message = (await ask(made, messages, tools=[TOOL])).choices[0].message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        calls = message.tool_calls or []
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "a b"} for call in calls]
    return messages


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_is_one_segment_of_the_sampled_token_ids(stream: bool) -> None:
    async with open_gateway(f"{CALL}\x01", "done\x01") as made:
        await converse(made, stream=stream)
        (segment,) = made.session.segments()
    first, second = made.engine.received_requests
    assert second.input_ids == [*first.input_ids, *ids(f"{CALL}\x01\n<tool>a b\x01\n<assistant>")]
    assert segment.token_ids.tolist() == [*second.input_ids, *ids("done\x01")]
    sampled = segment.token_ids[segment.loss_mask == 1].tolist()
    assert sampled == ids(f"{CALL}\x01done\x01")
    assert np.unique(segment.versions[segment.loss_mask == 0]).tolist() == [-1]
    kinds = [turn.kind for turn in segment.turns]
    assert kinds == [TurnKind.PROMPT, TurnKind.MODEL, TurnKind.OBSERVATION, TurnKind.MODEL]
    assert first.session == second.session, "the engine that has the prefix would not be asked again"


async def test_a_history_that_the_harness_rewrites_begins_another_segment() -> None:
    async with open_gateway(f"{CALL}\x01", "done\x01", "sum\x01") as made:
        await converse(made, stream=False)
        await ask(made, [*HELLO, {"role": "user", "content": "in short: done"}], tools=[TOOL])
        first, second = made.session.segments()
    prompt, shared = made.engine.received_requests[2].input_ids, second.offset
    assert second.parent == 0
    assert [*first.token_ids[:shared], *second.token_ids] == [*prompt, *ids("sum\x01")]
    assert second.loss_mask.sum() == 4
    assert prompt[shared] != first.token_ids[shared], "what both have is stored twice"


async def test_parallel_requests_become_separate_segments_with_their_own_tokens() -> None:
    async with open_gateway("first\x01", "left\x01", "right\x01") as made:
        message = (await ask(made, HELLO)).choices[0].message.model_dump(exclude_none=True)
        made.engine.may_reply.clear()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(ask(made, [*HELLO, message, {"role": "user", "content": word}])) for word in "ab"
            ]
            while len(made.engine.received_requests) < 3:  # noqa: ASYNC110  # a state of the engine, not an event
                await asyncio.sleep(0.001)
            made.engine.may_reply.set()
        contents = {task.result().choices[0].message.content for task in tasks}
        one, other = made.session.segments()
    assert contents == {"left", "right"}
    sampled = [bytes(map(int, each.token_ids[each.loss_mask == 1])) for each in (one, other)]
    assert sorted(sampled) == [b"first\x01left\x01", b"right\x01"]
    assert (other.parent, other.loss_mask.sum()) == (0, 6)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"top_p": 0.9}, "top_p"),
        ({"presence_penalty": 0.1}, "presence_penalty"),
        ({"frequency_penalty": 0.1}, "frequency_penalty"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"n": 2}, "n"),
        ({"temperature": 0.0}, "temperature"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"extra_body": {"min_p": 0.1}}, "min_p"),
        ({"extra_body": {"mirostat": 2}}, "mirostat"),
    ],
)
async def test_an_option_under_which_log_probabilities_would_be_false_is_refused(
    options: dict[str, object], parameter: str
) -> None:
    async with open_gateway("never\x01") as made:
        with pytest.raises(openai.BadRequestError, match=r"leave|use") as refused:
            await ask(made, HELLO, **options)
        assert made.session.segments() == ()
    assert (refused.value.param, refused.value.type) == (parameter, "invalid_request_error")
    assert made.engine.received_requests == []


async def test_options_without_effect_are_accepted() -> None:
    async with open_gateway("yes\x01") as made:
        await ask(
            made,
            HELLO,
            top_p=1.0,
            n=1,
            presence_penalty=0,
            temperature=0.7,
            user="u",
            seed=3,
            logit_bias={},
            store=True,
        )
    assert len(made.engine.replies) == 1


def test_every_option_of_the_official_client_is_handled() -> None:
    known = OPENAI_OPTIONS.harmless | OPENAI_OPTIONS.neutral.keys() | set(OpenAIChatRequest.__struct_fields__)
    assert set(typing.get_type_hints(CompletionCreateParamsStreaming)) <= known


@pytest.mark.parametrize("key", ["lsk-", "sk-nobody", "lsk-train-g000001-s00-a0.0000", "lsk-other.{mac}"])
async def test_requests_without_the_sessions_key_are_refused(key: str) -> None:
    async with open_gateway("never\x01") as made:
        wrong = key.format(mac=made.openai.api_key.rpartition(".")[2])
        stranger = made.openai.with_options(api_key=wrong)
        with pytest.raises(openai.AuthenticationError):
            await stranger.chat.completions.create(model="m", messages=HELLO)
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
    assert made.engine.received_requests == []


async def test_a_finished_session_accepts_no_request_and_records_no_late_reply() -> None:
    async with open_gateway("late\x01") as made:
        made.engine.may_reply.clear()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_denied(made))
            while not made.engine.received_requests:  # noqa: ASYNC110  # a state of the engine, not an event
                await asyncio.sleep(0.001)
            made.session.close()
            made.engine.may_reply.set()
        assert task.result()
        assert await _denied(made)
        assert made.session.segments() == ()


async def _denied(made: GatewayClients) -> bool:
    with pytest.raises(openai.PermissionDeniedError):
        await ask(made, HELLO)
    return True


async def test_an_engine_failure_is_a_503_and_the_client_retries() -> None:
    async with open_gateway(EngineUnavailable("restarting"), "there\x01", retries=1) as made:
        completion = await ask(made, HELLO)
        assert made.session.last_error is None
    assert completion.choices[0].message.content == "there"
    async with open_gateway(EngineUnavailable("restarting")) as made:
        with pytest.raises(openai.InternalServerError) as failed:
            await ask(made, HELLO)
        assert str(made.session.last_error) == "restarting", "the episode would be graded as if the policy had failed"
    assert (failed.value.status_code, failed.value.code) == (503, "engine_unavailable")


async def test_a_request_that_no_engine_can_serve_is_a_400_without_retries() -> None:
    async with open_gateway(RequestRefused("an input id lies outside the vocabulary"), retries=2) as made:
        with pytest.raises(openai.BadRequestError, match="vocabulary"):
            await ask(made, HELLO)
    assert len(made.engine.received_requests) == 1


async def test_a_disconnected_client_stops_sampling_and_nothing_is_recorded() -> None:
    async with open_gateway("gone\x01") as made:
        made.engine.may_reply.clear()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(ask(made, HELLO))
            while not made.engine.received_requests:  # noqa: ASYNC110  # a state of the engine, not an event
                await asyncio.sleep(0.001)
            task.cancel()
        while not made.engine.cancelled_requests:  # noqa: ASYNC110  # a state of the engine, not an event
            await asyncio.sleep(0.001)
        assert made.session.segments() == ()


async def test_a_stop_string_ends_the_reply_where_the_sampler_would_have() -> None:
    async with open_gateway("abc STOP more\x01", "go\x01") as made:
        completion = await ask(made, HELLO, stop=["STOP", "never"])
        message = completion.choices[0].message.model_dump(exclude_none=True)
        await ask(made, [*HELLO, message, {"role": "user", "content": "on"}])
        (segment,) = made.session.segments()
    assert (message["content"], completion.choices[0].finish_reason) == ("abc ", "stop")
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids("abc STOPgo\x01")
    text = FakeTokenizer().decode(made.engine.received_requests[1].input_ids, skip_special_tokens=False)
    assert text.endswith("<assistant>abc STOP\x01\n<user>on\x01\n<assistant>")


async def test_a_reply_at_its_token_limit_reports_it() -> None:
    async with open_gateway("abcdef\x01") as made:
        completion = await ask(made, HELLO, max_completion_tokens=3)
    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("abc", "length")


async def test_a_prompt_without_room_for_a_reply_sets_the_context_limit() -> None:
    async with open_gateway("never\x01", context_tokens=30) as made:
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(made, HELLO)
    assert refused.value.code == "context_length_exceeded"
    assert made.session.limit is EpisodeStatus.CONTEXT_LIMIT


async def test_parallel_requests_stay_within_the_trajectorys_token_limit() -> None:
    """Otherwise the trajectory would exceed its reservation, be refused, and count as failed hardware."""
    room = len(ChatFormat(FakeTokenizer()).encode_first_prompt(HELLO)) + 10
    async with open_gateway("x" * 50, "y" * 50, total_tokens=room) as made:
        made.engine.may_reply.clear()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(ask(made, HELLO))
            while not made.engine.received_requests:  # noqa: ASYNC110  # a state of the engine, not an event
                await asyncio.sleep(0.001)
            with pytest.raises(openai.BadRequestError):
                await ask(made, HELLO)
            made.engine.may_reply.set()
        assert task.result().choices[0].message.content == "x" * 10
        assert sum(map(len, made.session.segments())) == room


async def test_a_malformed_call_is_returned_as_text_and_marked_malformed() -> None:
    async with open_gateway("<tool_call>{oops</tool_call>\x01") as made:
        (choice,) = (await ask(made, HELLO, tools=[TOOL])).choices
        (segment,) = made.session.segments()
    assert (choice.message.content, choice.finish_reason) == ("<tool_call>{oops</tool_call>", "stop")
    assert segment.turns[-1].malformed


async def test_thoughts_dropped_by_the_harness_stay_in_the_prompt() -> None:
    async with open_gateway("<think>hm</think>\n\nyes\x01", "end\x01") as made:
        message = (await ask(made, HELLO)).choices[0].message
        await ask(made, [*HELLO, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "so"}])
        assert len(made.session.segments()) == 1
    assert (message.content, message.reasoning_content) == ("yes", "hm")
    text = FakeTokenizer().decode(made.engine.received_requests[1].input_ids, skip_special_tokens=False)
    assert "<think>hm</think>" in text


async def test_the_policy_is_listed_as_a_model() -> None:
    async with open_gateway() as made:
        listed = await made.openai.models.list()
        found = await made.openai.models.retrieve("policy")
        with pytest.raises(openai.NotFoundError):
            await made.openai.models.retrieve("gpt")
    assert [model.id for model in listed.data] == [found.id] == ["policy"]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "robot", "content": "x"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": "begun"}],
    ],
)
async def test_messages_that_cannot_be_rendered_are_refused_with_the_reason(messages: list[object]) -> None:
    async with open_gateway("never\x01") as made:
        with pytest.raises(openai.BadRequestError, match=r"messages|assistant"):
            await ask(made, messages)


async def test_a_harness_that_shortens_its_history_clears_the_context_limit() -> None:
    async with open_gateway("fine\x01", context_tokens=60) as made:
        with pytest.raises(openai.BadRequestError):
            await ask(made, [{"role": "user", "content": "x" * 60}])
        assert made.session.limit is EpisodeStatus.CONTEXT_LIMIT
        await ask(made, HELLO)
        assert made.session.limit is None


async def test_messages_too_large_for_any_context_are_refused_before_tokenization() -> None:
    paths: list[str] = []

    class NotingTokenizer(FakeTokenizer):
        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            paths.append(text)
            return super().encode(text, add_special_tokens=add_special_tokens)

    async with open_gateway(tokenizer=NotingTokenizer(), context_tokens=60) as made:
        paths.clear()
        with pytest.raises(openai.BadRequestError, match="more than 60 tokens") as refused:
            await ask(made, [{"role": "user", "content": "x" * 100_000}])
    assert refused.value.code == "context_length_exceeded"
    assert not any("xxx" in text for text in paths)


async def test_a_session_with_too_many_refused_requests_is_rate_limited() -> None:
    async with open_gateway(context_tokens=60, max_turns=1) as made:
        for _ in range(32):
            with pytest.raises(openai.BadRequestError):
                await ask(made, [{"role": "user", "content": "x" * 60}])
        with pytest.raises(openai.RateLimitError, match="has made 32 requests"):
            await ask(made, HELLO)


async def test_a_call_in_the_older_api_format_is_refused_instead_of_dropped() -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "shell", "arguments": "{}"}}
    async with open_gateway() as made:
        with pytest.raises(openai.BadRequestError, match="use tool_calls"):
            await ask(made, [*HELLO, old, {"role": "user", "content": "and?"}])


async def test_an_api_key_of_arbitrary_bytes_is_refused() -> None:
    async with open_gateway() as made:
        answer = await made.http.get(
            f"{made.gateway.url}/v1/models", headers={"Authorization": b"Bearer lsk-\xff.\xfe"}
        )
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
