"""If these fail, the model is trained on a conversation that is not the one its episodes had."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.tokens.chat_format import ChatFormat, load_chat_format
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.chat_template import Tokenizer
from launch.data.demo.tokenizer import END_OF_TURN, PAD, train_tokenizer
from protocol.errors import UserError
from sandbox.tools import SHELL_ONLY
from sandbox.tools.shell_only import SHELL_EXEC

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SYSTEM: ChatMessage = {"role": "system", "content": "You are a shell agent."}
TOOLS = [{"type": "function", "function": {"name": "shell_exec", "parameters": {}}}]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<|>"), min_size=1, max_size=30)
TURNS = st.lists(st.tuples(TEXT, st.lists(TEXT, min_size=1, max_size=2), st.booleans()), max_size=4)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return cast("Tokenizer", train_tokenizer(1024))


@pytest.fixture(scope="module")
def base_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer like that of Qwen3's base models: the end of text is not the end of a turn."""
    made = copy.deepcopy(cast("PreTrainedTokenizerFast", tokenizer))
    made.eos_token = PAD
    return cast("Tokenizer", made)


def templated(tokenizer: Tokenizer, template: str) -> Tokenizer:
    made = copy.deepcopy(cast("PreTrainedTokenizerFast", tokenizer))
    made.chat_template = template
    return cast("Tokenizer", made)


def whole(tokenizer: Tokenizer, messages: list[ChatMessage], tools: list[dict[str, object]] | None) -> list[int]:
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
    messages: list[ChatMessage] = [SYSTEM, {"role": "user", "content": instruction}]
    ids = chat.encode_first_prompt(messages)
    for reply, outputs, closed in turns:
        ids += tokenizer.encode(reply, add_special_tokens=False)
        if closed:
            ids.append(chat.turn_end_id)
        answers: list[ChatMessage] = [{"role": "tool", "content": output} for output in outputs]
        ids += chat.encode_delta(answers, closed=closed)
        messages += [{"role": "assistant", "content": reply}, *answers]
    assert ids == whole(tokenizer, messages, tools)


def test_tool_output_that_looks_like_our_probe_is_encoded_completely(tokenizer: Tokenizer) -> None:
    chat = ChatFormat(tokenizer)
    first: list[ChatMessage] = [SYSTEM, {"role": "user", "content": "Go."}]
    answer: ChatMessage = {"role": "tool", "content": "\u2063probe\u2063"}
    ids = [*chat.encode_first_prompt(first), *tokenizer.encode("ls", add_special_tokens=False)]
    ids += chat.encode_delta([answer], closed=False)
    assert ids == whole(tokenizer, [*first, {"role": "assistant", "content": "ls"}, answer], None)


def test_the_end_of_turn_token_is_left_out_of_the_decoded_reply(tokenizer: Tokenizer) -> None:
    chat = ChatFormat(tokenizer)
    sampled = tokenizer.encode("done", add_special_tokens=False)
    assert chat.decode_reply([*sampled, chat.turn_end_id]) == chat.decode_reply(sampled) == "done"
    assert chat.decode_reply([]) == ""


@pytest.mark.parametrize("tools", [True, False])
def test_the_first_prompt_lists_tools_only_if_they_are_given(tokenizer: Tokenizer, tmp_path: Path, tools: bool) -> None:
    """An agent that was not taught the calls' form beforehand cannot know it otherwise."""
    cast("PreTrainedTokenizerFast", tokenizer).save_pretrained(tmp_path)
    chat = load_chat_format(str(tmp_path), SHELL_ONLY if tools else {})
    prompt = chat.decode_reply(chat.encode_first_prompt([SYSTEM, {"role": "user", "content": "Go."}]))
    assert (f"<tools>\n{json.dumps(SHELL_EXEC.schema)}\n</tools>" in prompt) is tools
    assert prompt.startswith(f"<|im_start|>system\n{SYSTEM['content']}")
    assert prompt.endswith("<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n")


def test_a_turn_ends_with_the_templates_token_even_if_the_tokenizers_eos_differs(
    tokenizer: Tokenizer, base_tokenizer: Tokenizer
) -> None:
    chat, base = ChatFormat(tokenizer), ChatFormat(base_tokenizer)
    answer: list[ChatMessage] = [{"role": "tool", "content": "out"}]
    assert base.tokenizer.decode([base.turn_end_id], skip_special_tokens=False) == END_OF_TURN
    assert base.tokenizer.eos_token_id != base.turn_end_id
    for closed in (True, False):
        assert base.encode_delta(answer, closed=closed) == chat.encode_delta(answer, closed=closed)
    sampled = tokenizer.encode("done", add_special_tokens=False)
    assert (
        base.decode_reply([*sampled, base.turn_end_id])
        == base.decode_reply([*sampled, base.tokenizer.eos_token_id])
        == "done"
    )


@pytest.mark.parametrize(
    ("template", "tools", "says"),
    [
        (
            "{% for m in messages %}{{ m.content }}\n{% endfor %}",
            None,
            "does not end an assistant's turn with a special token",
        ),
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            None,
            "does not end an assistant's turn with a special token",
        ),
        ("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}", TOOLS, "set agent.tools = false"),
        (
            "{{ tools }}{% for m in messages if m.role != 'tool' %}{{ m.content }}<|im_end|>{% endfor %}",
            TOOLS,
            "omits the results of tools",
        ),
    ],
)
def test_an_unusable_template_is_refused_with_the_remedy(
    tokenizer: Tokenizer, template: str, tools: list[dict[str, object]] | None, says: str
) -> None:
    with pytest.raises(UserError, match=says) as caught:
        ChatFormat(templated(tokenizer, template), tools=tools)
    assert "\n" not in str(caught.value)


def test_results_are_rendered_by_templates_that_ask_for_their_calls(tokenizer: Tokenizer) -> None:
    """As gpt-oss' and Mistral's do."""
    template = (
        "{{ tools }}{% for m in messages %}{% if m.role == 'tool' %}"
        "{% if not messages[loop.index0 - 1].tool_calls and messages[loop.index0 - 1].role != 'tool' %}"
        "{{ raise_exception('no call') }}{% endif %}{% endif %}{{ m.content }}<|im_end|>{% endfor %}"
    )
    chat = ChatFormat(templated(tokenizer, template), tools=TOOLS)
    delta = chat.encode_delta([{"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}], closed=True)
    assert chat.decode_reply(delta) == "a<|im_end|>b"


def test_messages_refused_by_a_template_are_reported_with_its_reason(tokenizer: Tokenizer) -> None:
    """Otherwise a harness that sends such messages would be answered as if the gateway were broken."""
    with pytest.raises(UserError, match=r"refuses messages of user, assistant \(no assistants\)"):
        ChatFormat(templated(tokenizer, "{{ raise_exception('no assistants') }}"))
