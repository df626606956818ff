"""Conversations of several turns with templates of each family's shape.

If these fail, a model reads another history than the one that it made, waits for an end that its family does not write,
or is given results that its template refuses."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from actors.agents.agent import ActionOutcome, AgentToolCall
from actors.agents.hermes import HermesAgent
from actors.agents.prompt import PromptTemplate
from actors.agents.sglang_formats import detect_call_format
from actors.gateway.conversation import ConversationHistory
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage, ToolCallMessage
from protocol.errors import UserError
from sandbox.tools import SHELL_ONLY
from tests.support.actors.family_tokenizers import FAMILY_TEMPLATES, make_family_tokenizer
from tests.support.fakes.fake_policy import make_reply


class Shape(NamedTuple):
    """What a family's template writes."""

    format: str
    ends: tuple[str, ...]
    """The tokens with which replies without and with calls end."""
    several: bool = True
    """Whether a reply may have several calls."""
    thinks: bool = False


SHAPES = {
    "deepseek": Shape("deepseekv31", ("<｜end▁of▁sentence｜>",)),
    "glm": Shape("glm45", ("<|user|>", "<|observation|>"), thinks=True),
    "gpt_oss": Shape("gpt-oss", ("<|return|>", "<|call|>"), several=False),
    "hermes": Shape("hermes", ("<|im_end|>",)),
    "kimi": Shape("kimi_k2", ("<|im_end|>",), thinks=True),
    "llama3": Shape("llama3", ("<|eot_id|>",), several=False),
    "mistral_nemo": Shape("mistral", ("</s>",)),
    "mistral_small": Shape("mistral", ("</s>",)),
    "qwen3_coder": Shape("qwen3_coder", ("<|im_end|>",)),
}
EACH = pytest.mark.parametrize("name", sorted(SHAPES))
SCHEMAS = [tool.schema for tool in SHELL_ONLY.values()]
ASKED: ChatMessage = {"role": "user", "content": "Look."}
THEN: ChatMessage = {"role": "user", "content": "And now?"}


@cache
def chat(name: str) -> ChatFormat:
    return ChatFormat(make_family_tokenizer(FAMILY_TEMPLATES[name]), tools=SCHEMAS)


def text(name: str, ids: list[int]) -> str:
    return chat(name).control_tokens.decode(ids)


def calling(name: str, *commands: str, number: int = 0) -> ChatMessage:
    """Return a reply with a call of each command, the first of which is the ``number``-th of the conversation."""
    calls: list[ToolCallMessage] = [
        {"type": "function", "function": {"name": "shell_exec", "arguments": {"command": command}}}
        for command in commands
    ]
    if SHAPES[name].format == "kimi_k2":
        calls = [{**call, "id": f"functions.shell_exec:{at}"} for at, call in enumerate(calls, number)]
    return _thinking(name, {"role": "assistant", "content": "", "tool_calls": calls})


def _thinking(name: str, message: ChatMessage) -> ChatMessage:
    return {**message, "reasoning_content": "Hm."} if SHAPES[name].thinks else message


def result(content: str, call_id: str = "") -> ChatMessage:
    return {"role": "tool", "content": content, "name": "shell_exec", "tool_call_id": call_id}


def said(name: str, content: str) -> ChatMessage:
    return _thinking(name, {"role": "assistant", "content": content})


def conversation(name: str) -> list[list[ChatMessage]]:
    """Return replies, each with the messages that follow it."""
    second = ["cat a", "cat b"] if SHAPES[name].several else ["cat a"]
    kimi = SHAPES[name].format == "kimi_k2"
    return [
        [calling(name, "ls"), result("a b", "functions.shell_exec:0" if kimi else "")],
        [
            calling(name, *second, number=1),
            *(result(each, f"functions.shell_exec:{at}" if kimi else "") for at, each in enumerate(second, 1)),
        ],
        [said(name, "Done."), THEN],
        [calling(name, "pwd", number=3), result("/app", "functions.shell_exec:3" if kimi else "")],
    ]


@EACH
def test_each_prompt_is_the_last_one_with_its_reply_and_what_the_template_adds(name: str) -> None:
    """The prefix property: the whole conversation, rendered at once, has the same tokens."""
    whole = [ASKED]
    ids = chat(name).encode_first_prompt(whole)
    for reply, *following in conversation(name):
        ids += chat(name).encode_reply(reply)
        ids += chat(name).encode_next(ids[-1], following)
        whole += [reply, *following]
        shown = text(name, chat(name).encode_first_prompt(whole))
        if name == "gpt_oss":  # <|return|> is what is sampled, and <|end|> what is rendered
            shown = shown.replace("Done.<|end|>", "Done.<|return|>")
        if name.startswith("mistral"):  # ids count on over the conversation
            assert text(name, ids).count("00000000") == shown.count("00000000")
            continue
        assert text(name, ids) == shown


@EACH
def test_a_reply_ends_with_the_tokens_with_which_its_family_ends_replies(name: str) -> None:
    made = chat(name)
    assert text(name, list(made.stop_ids)) == "".join(SHAPES[name].ends)
    for reply in (calling(name, "ls"), said(name, "Done.")):
        ids = made.encode_reply(reply)
        assert ids[-1] in made.stop_ids
        assert text(name, ids).endswith(made.decode_reply(ids) + text(name, ids[-1:]))


@EACH
def test_a_reply_that_has_not_ended_is_ended_before_its_results(name: str) -> None:
    reply, answer = chat(name).encode_reply(calling(name, "ls")), result("a b", "functions.shell_exec:0")
    open_end, closed = (chat(name).encode_next(ids[-1], [answer]) for ids in (reply[:-1], reply))
    assert open_end == [reply[-1], *closed]


def test_another_roles_mark_at_the_end_of_glms_reply_does_not_replace_that_of_its_results() -> None:
    delta = chat("glm").encode_next(chat("glm").turn_end_id, [result("a b")])
    assert text("glm", delta).startswith("<|observation|>\n<tool_response>a b")


@EACH
def test_the_format_is_that_of_the_template_and_reads_the_calls_that_it_writes(name: str) -> None:
    found = detect_call_format(chat(name).tokenizer)
    assert getattr(found, "name", "hermes") == SHAPES[name].format
    agent = HermesAgent(PromptTemplate("sys"), SHELL_ONLY, SHELL_ONLY, found)
    commands = ["ls", "cat '</tool_call>'"] if SHAPES[name].several and name not in ("glm", "qwen3_coder") else ["ls"]
    ids = chat(name).encode_reply(calling(name, *commands, number=7))
    parsed = agent.parse_reply(chat(name).reply_prefix + chat(name).decode_reply(ids))
    assert parsed.actions == [AgentToolCall("shell_exec", {"command": each}) for each in commands]
    assert agent.parse_reply(chat(name).decode_reply(chat(name).encode_reply(said(name, "Done.")))).final


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("kimi", "## Return of functions.shell_exec:7\na b"),
        ("mistral_small", "[TOOL_RESULTS]000000007[TOOL_CONTENT]a b"),
        ("gpt_oss", '<|start|>functions.shell_exec to=assistant<|channel|>commentary<|message|>"a b"<|end|>'),
    ],
)
def test_a_result_names_the_call_that_the_model_wrote(name: str, shown: str) -> None:
    agent = HermesAgent(PromptTemplate("sys"), SHELL_ONLY, SHELL_ONLY, detect_call_format(chat(name).tokenizer))
    message = calling(name, "ls", number=7)
    if name == "mistral_small":
        message["tool_calls"] = [{**call, "id": "000000007"} for call in message.get("tool_calls", [])]
    reply = chat(name).encode_reply(message)
    (action,) = agent.parse_reply(chat(name).decode_reply(reply)).actions
    messages = agent.format_outcomes([ActionOutcome(action, "a b")])
    assert messages is not None
    assert shown in text(name, chat(name).encode_next(reply[-1], messages))


def test_a_harness_results_are_named_as_the_calls_of_the_reply_before_them() -> None:
    """Neither API has a result's tool, and a harness has ids of its own."""
    for name, shown in (("gpt_oss", "<|start|>functions.shell_exec to="), ("kimi", "functions.shell_exec:7\na b")):
        history, reply = ConversationHistory(), calling(name, "ls", number=7)
        prompt = history.render_prompt(chat(name), (), [ASKED])
        history.add_reply(prompt, make_reply(chat(name).encode_reply(reply), 1), reply, malformed=False)
        answered = history.render_prompt(chat(name), (), [ASKED, reply, {"role": "tool", "content": "a b"}])
        assert shown in text(name, answered.ids)


@EACH
def test_two_results_are_rendered_even_if_the_template_renders_one_call(name: str) -> None:
    """A model may write two calls against its template's rule; the episode does not fail for it."""
    delta = text(name, chat(name).encode_delta([result("first"), result("second")], closed=True))
    assert 0 < delta.index("first") < delta.index("second")


@EACH
def test_earlier_replies_are_rendered_as_text_or_refused_at_the_start(name: str) -> None:
    if name in ("gpt_oss", "mistral_nemo"):
        with pytest.raises(UserError, match=r"set agent\.history = 'whole'"):
            chat(name).check_text_history()
    else:
        chat(name).check_text_history()
