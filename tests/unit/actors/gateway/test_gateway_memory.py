"""If this fails, a harness that names other tools in each request fills its worker's memory."""

from __future__ import annotations

import gc

import pytest

from actors.gateway.chat_request import ChatRequest, ChatTool
from actors.tokens.chat_format import ChatFormat
from tests.support.actors.gateways import open_gateway

ROOM = 10_000_000


def chat_formats() -> int:
    gc.collect()
    return sum(type(each) is ChatFormat for each in gc.get_objects())


@pytest.mark.parametrize(("chars", "kept"), [(100, 3), (300_000, 0)], ids=["short", "long"])
async def test_only_short_tool_lists_are_kept_after_their_request(chars: int, kept: int) -> None:
    async with open_gateway(*["x\x01"] * 3, context_tokens=ROOM, total_tokens=ROOM) as made:
        before = chat_formats()
        for name in "abc":
            tool = ChatTool(name, "d" * chars, {"type": "object"})
            await made.session.complete(ChatRequest(messages=[{"role": "user", "content": "a"}], tools=(tool,)))
        assert chat_formats() - before == kept
