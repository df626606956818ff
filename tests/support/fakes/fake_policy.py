"""A policy without a model: a tokenizer of one id per character, and an engine that says what it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tokenizers import AddedToken

from actors.engines.messages import GenerateReply, GenerateRequest, OnPartialReply, PartialReply
from actors.tokens.chat_messages import ChatMessage

END = 1
LS = 0xE000
"""An id that decodes to "ls", which encodes to two others: as with every real tokenizer, a text has many encodings."""


class FakeTokenizer:
    """One id per character; id 1 is the turn's end."""

    eos_token_id = END
    chat_template = None
    added_tokens_decoder: ClassVar[dict[int, AddedToken]] = {END: AddedToken("\x01", special=True)}

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return ids_of(text)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        kept = (token for token in token_ids if token != END or not skip_special_tokens)
        return "".join("ls" if token == LS else chr(token) for token in kept)

    def apply_chat_template(
        self,
        conversation: Sequence[ChatMessage],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        tools: Sequence[object] | None,
    ) -> str:
        text = f"<tools>{json.dumps(tools)}\x01\n" if tools else ""
        for message in conversation:
            calls = (json.dumps(call["function"]) for call in message.get("tool_calls", ()))
            content = message["content"] + "".join(f"<tool_call>{call}</tool_call>" for call in calls)
            text += f"<{message['role']}>{content}\x01\n"
        return text + ("<assistant>" if add_generation_prompt else "")


def ids_of(text: str) -> list[int]:
    return [END if char == "\x01" else ord(char) for char in text]


def partial_reply(text: str) -> PartialReply:
    """The beginning of a reply, of version 1."""
    ids = ids_of(text)
    return PartialReply(ids, [-0.5] * len(ids), [1] * len(ids))


def make_reply(ids: list[int], version: int) -> GenerateReply:
    """A whole reply of one version, whose log-probabilities tell it from another's."""
    return GenerateReply(
        token_ids=ids,
        logprobs=[-0.5 * version] * len(ids),
        versions=[version] * len(ids),
        finish="stop" if ids[-1] == END else "length",
        key_version=version,
        mixed_prefix=False,
        server_switches=0,
        ms=1.0,
        cached_tokens=0,
        engine="engine-0",
    )


@dataclass
class ScriptedEngine:
    """Answers with the given texts, one a turn, each sampled by the next version; an error in their place is raised.
    Requests wait while ``open`` is not set."""

    texts: list[str | Exception]
    received_requests: list[GenerateRequest] = field(default_factory=list[GenerateRequest])
    replies: list[GenerateReply] = field(default_factory=list[GenerateReply])
    may_reply: asyncio.Event = field(default_factory=asyncio.Event)
    on_request: Callable[[], None] = lambda: None
    cancelled_requests: int = 0
    """Requests whose caller went away."""
    watch: OnPartialReply | None = None
    """The last request's callback for partial replies."""

    def __post_init__(self) -> None:
        self.may_reply.set()

    def stream_partial(self, text: str) -> None:
        """Pass ``text`` as the partial reply to the last request's callback."""
        if self.watch is not None:
            self.watch(partial_reply(text))

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        self.received_requests.append(request)
        self.watch = watch
        self.on_request()
        turn = len(self.received_requests)
        text = self.texts.pop(0)
        try:
            await self.may_reply.wait()
        except asyncio.CancelledError:
            self.cancelled_requests += 1
            raise
        if isinstance(text, Exception):
            raise text
        ids = ids_of(text)[: request.max_new_tokens]
        reply = make_reply(ids, turn)
        self.replies.append(reply)
        return reply
