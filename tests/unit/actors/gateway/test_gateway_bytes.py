"""If this fails, a harness's request of bytes that are no text ends in a status 500, after which clients ask again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actors.gateway.anthropic_requests import read_anthropic_request
from actors.gateway.api_types import ApiCall
from actors.gateway.chat_request import GatewayRequestError
from actors.gateway.openai_requests import read_openai_request
from actors.gateway.responses_requests import read_responses_request

MESSAGE = b'{"role":"user","content":%s}'


@pytest.mark.parametrize("content", [b'"\xff"', b'"\\ud800"', b"[" * 100_000, b'"', b""])
@pytest.mark.parametrize(
    ("read", "body"),
    [
        (read_openai_request, b'{"messages":[%s]}'),
        (read_responses_request, b'{"input":[%s]}'),
        (read_anthropic_request, b'{"max_tokens":1,"messages":[%s]}'),
    ],
)
def test_a_content_that_is_no_text_is_refused(read: Callable[[bytes], ApiCall], body: bytes, content: bytes):
    with pytest.raises(GatewayRequestError):
        read(body % (MESSAGE % content))
