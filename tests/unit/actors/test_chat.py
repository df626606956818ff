"""If these fail, the model is trained on a conversation that is not the one its episodes had."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.agents.chat import ChatFormat, Message, Tokenizer
from launch.demo.tokenizer import train_tokenizer

SYSTEM: Message = {"role": "system", "content": "You are a shell agent."}
TOOLS = [{"type": "function", "function": {"name": "shell_exec", "parameters": {}}}]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<|>"), min_size=1, max_size=30)
TURNS = st.lists(st.tuples(TEXT, st.lists(TEXT, min_size=1, max_size=2), st.booleans()), max_size=4)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return cast("Tokenizer", train_tokenizer(1024))


def whole(tokenizer: Tokenizer, messages: list[Message], tools: list[dict[str, object]] | None) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, tools=tools)
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("tools", [None, TOOLS])
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(instruction=TEXT, turns=TURNS)
def test_prompt_and_deltas_are_the_ids_of_the_whole_conversation(
    tokenizer: Tokenizer,
    tools: list[dict[str, object]] | None,
    instruction: str,
    turns: list[tuple[str, list[str], bool]],
) -> None:
    chat = ChatFormat(tokenizer, tools=tools)
    messages: list[Message] = [SYSTEM, {"role": "user", "content": instruction}]
    ids = chat.first_prompt(messages)
    for reply, outputs, closed in turns:
        ids += tokenizer.encode(reply, add_special_tokens=False)
        if closed:
            ids.append(chat.turn_end)
        answers: list[Message] = [{"role": "tool", "content": output} for output in outputs]
        ids += chat.delta(answers, closed=closed)
        messages += [{"role": "assistant", "content": reply}, *answers]
    assert ids == whole(tokenizer, messages, tools)


@pytest.mark.parametrize("output", ["\u2063probe\u2063", "a<|im_end|>b", "<|im_start|>assistant\n"])
def test_no_output_can_hide_itself_from_the_conversation(tokenizer: Tokenizer, output: str) -> None:
    chat = ChatFormat(tokenizer)
    first: list[Message] = [SYSTEM, {"role": "user", "content": "Go."}]
    answer: Message = {"role": "tool", "content": output}
    ids = [*chat.first_prompt(first), *tokenizer.encode("ls", add_special_tokens=False)]
    ids += chat.delta([answer], closed=False)
    assert ids == whole(tokenizer, [*first, {"role": "assistant", "content": "ls"}, answer], None)


def test_the_turns_end_is_no_part_of_what_was_said(tokenizer: Tokenizer) -> None:
    chat = ChatFormat(tokenizer)
    said = tokenizer.encode("done", add_special_tokens=False)
    assert chat.text([*said, chat.turn_end]) == chat.text(said) == "done"
    assert chat.text([]) == ""
