"""What real harnesses put into the messages of both APIs.  If these fail, a harness stops in the middle of its work, or
the policy reads one call's result as another's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anthropic
import openai
import pytest

from actors.agents.sglang_formats import call_format
from tests.support.actors.gateways import GatewayClients, open_gateway
from tests.support.fakes.fake_policy import FakeTokenizer, ids_of

CALLS = "".join(f'<tool_call>{{"name": "shell", "arguments": {{"command": "{each}"}}}}</tool_call>' for each in "ab")
SCHEMA = {"type": "object", "properties": {}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


class AnthropicHarness:
    """Speaks Anthropic's API."""

    refusal = anthropic.BadRequestError
    one_call: dict[str, Any] = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}  # noqa: RUF012  no test changes it

    def __init__(self, made: GatewayClients) -> None:
        self._made = made
        self.messages: list[Any] = [{"role": "user", "content": "hello"}]

    async def ask(self, **options: Any) -> list[str]:
        """The ids of the reply's calls."""
        reply = await self._made.anthropic.messages.create(
            model="m",
            max_tokens=200,
            messages=self.messages,
            tools=[{"name": "shell", "input_schema": SCHEMA}],
            **options,
        )
        self.messages.append({"role": "assistant", "content": [each.model_dump() for each in reply.content]})
        return [block.id for block in reply.content if block.type == "tool_use"]

    def answer(self, results: Sequence[tuple[str, object]]) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": call, "content": content} for call, content in results]
        self.messages.append({"role": "user", "content": blocks})


class OpenAIHarness:
    """Speaks OpenAI's chat completions."""

    refusal = openai.BadRequestError
    one_call: dict[str, Any] = {"parallel_tool_calls": False}  # noqa: RUF012  no test changes it

    def __init__(self, made: GatewayClients) -> None:
        self._made = made
        self.messages: list[Any] = [{"role": "user", "content": "hello"}]

    async def ask(self, **options: Any) -> list[str]:
        """The ids of the reply's calls."""
        reply = await self._made.openai.chat.completions.create(
            model="m",
            messages=self.messages,
            tools=[{"type": "function", "function": {"name": "shell", "parameters": SCHEMA}}],
            **options,
        )
        message = reply.choices[0].message
        self.messages.append(message.model_dump(exclude_none=True))
        return [call.id for call in message.tool_calls or ()]

    def answer(self, results: Sequence[tuple[str, object]]) -> None:
        self.messages += [{"role": "tool", "tool_call_id": call, "content": content} for call, content in results]


HARNESSES = pytest.mark.parametrize("harness", [AnthropicHarness, OpenAIHarness])
Harness = type[AnthropicHarness | OpenAIHarness]


def last_prompt(made: GatewayClients) -> str:
    return FakeTokenizer().decode(made.engine.received_requests[-1].input_ids, skip_special_tokens=False)


@HARNESSES
async def test_results_in_another_order_than_the_calls_are_put_into_it(harness: Harness) -> None:
    async with open_gateway(f"{CALLS}\x01", "done\x01") as made:
        client = harness(made)
        first, second = await client.ask()
        client.answer([(second, "of b"), (first, "of a")])
        await client.ask()
        (segment,) = made.session.segments()
    assert last_prompt(made).endswith("\x01\n<tool>of a\x01\n<tool>of b\x01\n<assistant>")
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of(f"{CALLS}\x01done\x01")


@HARNESSES
@pytest.mark.parametrize(
    ("answered", "why"),
    [
        (["nobody", "1"], "'nobody', which the reply before it does not have"),
        (["0", "0"], "has two results"),
        (["1"], "has no result"),
    ],
)
async def test_results_that_fit_no_call_are_refused(harness: Harness, answered: list[str], why: str) -> None:
    async with open_gateway(f"{CALLS}\x01", "never\x01") as made:
        client = harness(made)
        ids = await client.ask()
        client.answer([(ids[int(each)] if each.isdigit() else each, "out") for each in answered])
        with pytest.raises(client.refusal, match=why):
            await client.ask()
    assert len(made.engine.received_requests) == 1


@HARNESSES
async def test_a_reply_without_results_may_be_followed_by_a_message(harness: Harness) -> None:
    """A person interrupts, or the harness tells that it does not run the calls."""
    async with open_gateway(f"{CALLS}\x01", "done\x01") as made:
        client = harness(made)
        await client.ask()
        client.messages.append({"role": "user", "content": "stop"})
        await client.ask()
    assert last_prompt(made).endswith("\x01\n<user>stop\x01\n<assistant>")


@HARNESSES
async def test_a_reply_ends_with_its_first_call_if_a_second_is_forbidden(harness: Harness) -> None:
    async with open_gateway(f"I look.{CALLS} more\x01", "done\x01") as made:
        client = harness(made)
        (call,) = await client.ask(**client.one_call)
        client.answer([(call, "of a")])
        await client.ask(**client.one_call)
        (segment,) = made.session.segments()
    kept = f"I look.{CALLS[: len(CALLS) // 2]}"
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of(f"{kept}done\x01")
    assert last_prompt(made).endswith(f"<assistant>{kept}\x01\n<tool>of a\x01\n<assistant>")


@HARNESSES
async def test_a_reply_with_one_call_is_whole_if_a_second_is_forbidden(harness: Harness) -> None:
    text = f"{CALLS[: len(CALLS) // 2]} more\x01"
    async with open_gateway(text) as made:
        assert len(await harness(made).ask(**harness.one_call)) == 1
        (segment,) = made.session.segments()
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of(text)


NATIVE_CALL = "<tool_call>\n<function=shell>\n<parameter=command>\n{}\n</parameter>\n</function>\n</tool_call>"


@HARNESSES
async def test_calls_of_the_models_own_format_are_calls_for_the_harness(harness: Harness) -> None:
    """And the sampled tokens stay what they were."""
    said = f"I look.\n{NATIVE_CALL.format('ls')}\n{NATIVE_CALL.format('pwd')}\x01"
    async with open_gateway(said, said, "done\x01", calls=call_format("qwen3_coder")) as made:
        client = harness(made)
        first, second = await client.ask()
        client.answer([(second, "of pwd"), (first, "of ls")])
        (call,) = await client.ask(**client.one_call)
        client.answer([(call, "again")])
        assert await client.ask() == []
        (segment,) = made.session.segments()
    assert last_prompt(made).endswith("\x01\n<tool>again\x01\n<assistant>")
    kept = said[: said.index("</tool_call>") + len("</tool_call>")]
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of(f"{said}{kept}done\x01")


@HARNESSES
async def test_a_call_whose_arguments_are_no_object_is_text_for_the_harness(harness: Harness) -> None:
    """One such reply would lose the rollout."""
    said = '{"name": "shell", "parameters": "ls"}\x01'
    async with open_gateway(said, "done\x01", calls=call_format("llama3")) as made:
        client = harness(made)
        assert await client.ask() == []
        client.messages.append({"role": "user", "content": "again"})
        assert await client.ask() == []
        (segment,) = made.session.segments()
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of(f"{said}done\x01")


@HARNESSES
async def test_an_image_in_a_result_is_told_and_one_in_the_task_refused(harness: Harness) -> None:
    image = IMAGE if harness is AnthropicHarness else IMAGE_PART
    text = {"type": "text", "text": "see"}
    async with open_gateway(f"{CALLS}\x01", "done\x01", "done\x01") as made:
        client = harness(made)
        first, second = await client.ask()
        client.answer([(first, [text, image]), (second, [image])])
        await client.ask()
        assert last_prompt(made).endswith(
            "<tool>see\n[An image, which is not shown.]\x01\n<tool>[An image, which is not shown.]\x01\n<assistant>"
        )
        client.messages.append({"role": "user", "content": [text, image]})
        await client.ask()
        assert last_prompt(made).endswith("<user>see\n[An image, which is not shown.]\x01\n<assistant>")
        other = harness(made)
        other.messages = [{"role": "user", "content": [text, image]}]
        with pytest.raises(client.refusal, match="contain an image"):
            await other.ask()


@pytest.mark.parametrize("content", ["be brief", [{"type": "text", "text": "be brief"}]])
async def test_anthropic_system_messages_have_their_place_in_the_prompt(content: object) -> None:
    system, user = {"role": "system", "content": content}, {"role": "user", "content": "x"}
    async with open_gateway("a\x01") as made:
        options = {"model": "m", "messages": [system, user, system, user, system], "system": "sys"}
        await made.anthropic.messages.create(max_tokens=9, **options)
        counted = await made.anthropic.messages.count_tokens(**options)
    prompt = "<system>sys\x01\n" + "<system>be brief\x01\n<user>x\x01\n" * 2 + "<system>be brief\x01\n<assistant>"
    assert last_prompt(made) == prompt
    assert counted.input_tokens == len(prompt)


async def test_anthropic_blocks_of_a_session_are_rendered_or_kept_aside() -> None:
    async with open_gateway(f"<think>hm</think>{CALLS}\x01", "done\x01") as made:
        client = AnthropicHarness(made)
        first, second = await client.ask(thinking={"type": "enabled", "budget_tokens": 1024})
        client.messages[-1]["content"].insert(0, {"type": "redacted_thinking", "data": "x"})
        client.answer([(first, [{"type": "tool_reference", "tool_name": "Grep"}]), (second, None)])
        await client.ask()
        (segment,) = made.session.segments()
    assert segment.turns[1].kind == "model"
    assert last_prompt(made).endswith("\x01\n<tool>Tool found: Grep\x01\n<tool>\x01\n<assistant>")


async def test_what_the_policy_cannot_see_of_a_claude_code_session_is_told() -> None:
    """One PDF that a harness reads would end its session."""
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
    found = {"type": "search_result", "source": "s", "title": "t", "content": []}
    async with open_gateway(f"{CALLS}\x01", "done\x01") as made:
        client = AnthropicHarness(made)
        first, second = await client.ask()
        client.answer([(first, [found]), (second, [pdf])])
        client.messages[-1]["content"] += [pdf, {"type": "container_upload", "file_id": "f"}]
        client.messages.append({"role": "system", "content": [IMAGE]})
        await client.ask()
    assert last_prompt(made).endswith(
        "<tool>[A search result, which is not shown.]\x01\n<tool>[A document, which is not shown.]\x01\n"
        "<user>[A document, which is not shown.]\n[An uploaded file, which is not shown.]\x01\n"
        "<system>[An image, which is not shown.]\x01\n<assistant>"
    )


async def test_files_and_recordings_in_the_course_of_a_chat_are_told_and_refused_in_its_task() -> None:
    content = [{"type": "file", "file": {"file_id": "f"}}, {"type": "input_audio", "input_audio": {}}]
    async with open_gateway(f"{CALLS}\x01", "done\x01") as made:
        client = OpenAIHarness(made)
        client.answer([(call, content) for call in await client.ask()])
        await client.ask()
        other = OpenAIHarness(made)
        other.messages = [{"role": "user", "content": content}]
        with pytest.raises(openai.BadRequestError, match="contain a file"):
            await other.ask()
    told = "<tool>[A file, which is not shown.]\n[A recording, which is not shown.]\x01\n"
    assert last_prompt(made).endswith(f"{told * 2}<assistant>")


async def test_a_block_that_cannot_be_read_is_refused_by_its_name() -> None:
    async with open_gateway("never\x01") as made:
        content = [{"type": "document", "source": {}}]
        with pytest.raises(anthropic.BadRequestError, match="contain a document"):
            await made.anthropic.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": content}]
            )


async def test_openai_arguments_may_be_an_object_and_ids_null() -> None:
    async with open_gateway("done\x01") as made:
        call = {"id": None, "type": "function", "function": {"name": "shell", "arguments": {"a": 1}}}
        client = OpenAIHarness(made)
        client.messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        client.messages += [{"role": "tool", "content": "out"}]
        await client.ask()
    assert '<tool_call>{"name": "shell", "arguments": {"a": 1}}</tool_call>' in last_prompt(made)
