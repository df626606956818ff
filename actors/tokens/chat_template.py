"""A chat template as text: messages with disarmed texts, and with what some families' templates require of them.

Each call and each result gets an id in the family's form: Mistral's templates refuse others, and Kimi's show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from jinja2 import TemplateError

from actors.tokens.chat_messages import ChatMessage, ToolCallMessage
from actors.tokens.control_tokens import ControlTokens, TextTokenizer
from protocol.errors import UserError

_KIMI_ID = re.compile(r"functions\.[\w.-]+:\d+")
_PLAIN_ID = re.compile("[A-Za-z0-9]{9}")
"""As Mistral's templates require them; those of other families do not show any."""


class Tokenizer(TextTokenizer, Protocol):
    """The parts of a Hugging Face tokenizer that are used here."""

    eos_token_id: int

    def apply_chat_template(
        self,
        conversation: Sequence[ChatMessage],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        tools: Sequence[object] | None,
        **template: object,
    ) -> str: ...


class ChatTemplate:
    """The chat template of one tokenizer with its tools and arguments."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        control_tokens: ControlTokens,
        *,
        tools: Sequence[object] | None,
        thinking: bool | None,
    ) -> None:
        self._tokenizer, self._disarm = tokenizer, control_tokens.disarm
        self._tools = self._disarm(tools)
        self._arguments = {} if thinking is None else {"enable_thinking": thinking}
        self._has_kimi_ids = "<|tool_call_begin|>" in str(tokenizer.chat_template)

    def render(self, messages: Sequence[ChatMessage], *, generate: bool, offer: bool = True) -> str:
        """Return the text of ``messages``, with the generation prompt if ``generate``, and without tools if not
        ``offer``.  Raises UserError if the template refuses them."""
        try:
            return self._tokenizer.apply_chat_template(
                [self._prepare(message) for message in self._with_ids(messages)],
                tokenize=False,
                add_generation_prompt=generate,
                tools=self._tools if offer else None,
                **self._arguments,
            )
        except (TemplateError, TypeError) as error:
            roles = ", ".join(message["role"] for message in messages)
            raise UserError(
                f"the chat template of this model refuses messages of {roles} ({error}): give the tokenizer a template "
                "that renders them"
            ) from error

    def _prepare(self, message: ChatMessage) -> ChatMessage:
        disarmed = self._disarm(message)
        if message["role"] == "assistant":
            disarmed["content"] = self._disarm(message["content"], reply=True)
        if "reasoning_content" in disarmed and not (message["content"] and "tool_calls" in message):
            disarmed["thinking"] = disarmed["reasoning_content"]
        return disarmed

    def _with_ids(self, messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
        """Yield the messages with ids of calls and results in the family's form, which some templates require."""
        called = 0
        unanswered: list[str] = []
        for message in messages:
            if calls := message.get("tool_calls"):
                unanswered = [self._call_id(call, number) for number, call in enumerate(calls, called)]
                called += len(calls)
                identified = [{**call, "id": call_id} for call, call_id in zip(calls, unanswered, strict=True)]
                yield cast("ChatMessage", {**message, "tool_calls": identified})
            elif message["role"] == "tool":
                yield {**message, "tool_call_id": unanswered.pop(0) if unanswered else f"{called:09d}"}
            else:
                yield message

    def _call_id(self, call: ToolCallMessage, number: int) -> str:
        pattern, made = _PLAIN_ID, f"{number:09d}"
        if self._has_kimi_ids:
            pattern, made = _KIMI_ID, f"functions.{call['function']['name']}:{number}"
        given = call.get("id", "")
        return given if pattern.fullmatch(given) else made
