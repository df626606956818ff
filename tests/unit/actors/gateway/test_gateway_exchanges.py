"""If these fail, the saved conversation of a harness is not the one that it had with the policy."""

from __future__ import annotations

from collections.abc import Sequence

from actors.gateway.chat_request import ChatTool
from actors.gateway.conversation import ConversationHistory
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage, ToolCallMessage
from tests.support.fakes.fake_policy import END, FakeTokenizer, make_reply

CHAT = ChatFormat(FakeTokenizer())
TOOL = ChatTool("shell", "", {})
TASK: list[ChatMessage] = [{"role": "user", "content": "make it"}]
CALL: ToolCallMessage = {"type": "function", "function": {"name": "shell", "arguments": {"command": "ls"}}}


def said(text: str) -> ChatMessage:
    return {"role": "assistant", "content": text}


def ask(
    history: ConversationHistory, messages: Sequence[ChatMessage], reply: ChatMessage, *tools: ChatTool
) -> list[ChatMessage]:
    """Answer a request; return the conversation so far, without thoughts, as a harness continues it."""
    prompt = history.render_prompt(CHAT, tools, messages)
    history.add_reply(prompt, make_reply([*map(ord, reply["content"]), END], 1), reply, malformed=False)
    echo = said(f"{reply['content']}\n")
    return [*messages, {**echo, "tool_calls": reply["tool_calls"]} if "tool_calls" in reply else echo]


def test_it_has_every_message_once_with_the_replies_as_they_were_sampled() -> None:
    history, result = ConversationHistory(), ChatMessage(role="tool", content="a b")
    assert history.work == ([], (), "")
    first: ChatMessage = {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [CALL]}
    asked = ask(history, TASK, first, TOOL)
    ask(history, [{"role": "system", "content": "a title"}, *TASK], said("make"))
    ask(history, [*asked, result], said("again"), TOOL)
    ask(history, [*asked, result], said("done"), TOOL)
    assert history.work == ([*TASK, first, result, said("done")], (TOOL,), "")


def test_of_a_shortened_history_it_is_the_last_one_and_of_steps_all_of_them() -> None:
    history, short = ConversationHistory(), ChatMessage(role="user", content="you have looked")
    ask(history, [*ask(history, TASK, said("look"), TOOL), *TASK], said("look again"), TOOL)
    ask(history, [short], said("done"), TOOL)
    assert history.work.messages == [short, said("done")]
    history.step += 1
    ask(history, TASK, said("two"), TOOL)
    assert history.work.messages == [short, said("done"), *TASK, said("two")]
