"""The one HTTP client of OpenAI's chat API: connections to one endpoint, and replies that are checked and bounded.

It sends each request once and leaves deadlines, retries and the meaning of a reply to its callers.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from protocol.idle_connections import FOREIGN_IDLE_S

MAX_REPLY_BYTES = 16 << 20
_SHOWN_CHARS = 300
"""Characters of a reply that an error shows."""
CONNECTION_ERRORS = (aiohttp.ClientError, OSError)
"""Errors of a request if the endpoint cannot be reached or the connection breaks."""


class ChatApiError(Exception):
    """The endpoint answered with something other than a chat completion."""


class ChatApiStatusError(ChatApiError):
    """The endpoint refused the request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status, self.text = status, text

    def __str__(self) -> str:
        return f"{self.status}: {self.text}"


class ChatFunction(msgspec.Struct):
    """A function that a reply calls."""

    name: str
    arguments: str | dict[str, object] | None = None
    """JSON, as the model wrote it; some endpoints send the object itself."""

    @property
    def written_arguments(self) -> str:
        """The arguments as JSON."""
        given = self.arguments or {}
        return given if isinstance(given, str) else msgspec.json.encode(given).decode()


class ChatToolCall(msgspec.Struct):
    """A call that the endpoint has parsed."""

    function: ChatFunction
    id: str | None = None


class ChatContentPart(msgspec.Struct):
    """A part of a message's content."""

    type: str = ""
    text: str | None = None


class ChatReplyMessage(msgspec.Struct):
    """The assistant's message."""

    content: str | list[ChatContentPart] | None = None
    tool_calls: list[ChatToolCall] | None = None
    function_call: ChatFunction | None = None
    """The API's older form of a single call."""

    @property
    def text(self) -> str:
        """The content, which some endpoints send in parts."""
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content if part.type == "text")
        return self.content or ""

    @property
    def calls(self) -> list[ChatToolCall]:
        """The calls in either form."""
        return self.tool_calls or ([ChatToolCall(self.function_call)] if self.function_call else [])


class ChatChoice(msgspec.Struct):
    """One reply of a completion."""

    message: ChatReplyMessage
    finish_reason: str | None = None


class ChatUsage(msgspec.Struct):
    """Token counts by the endpoint."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class ChatCompletion(msgspec.Struct):
    """A completion with at least one choice."""

    choices: list[ChatChoice]
    usage: ChatUsage | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_COMPLETION = msgspec.json.Decoder(ChatCompletion)
_MODELS = msgspec.json.Decoder(_Models)


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    body: bytes


class ChatApiClient:
    """Connections to one endpoint, for any number of requests at once.  An async context manager."""

    def __init__(self, url: str, key: str = "", *, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        """``url`` is the base before ``/chat/completions``."""
        self.url = url
        self._key, self._max_reply_bytes = key, max_reply_bytes
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=FOREIGN_IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def complete(self, request: dict[str, object]) -> ChatCompletion:
        """Send ``request`` once.  Raises ChatApiStatusError, ChatApiError and :data:`CONNECTION_ERRORS`."""
        response = await self._send("POST", "chat/completions", request)
        if response.status != 200:
            raise ChatApiStatusError(response.status, _one_line(response.body))
        try:
            completion = _COMPLETION.decode(response.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ChatApiError(f"the reply is not a chat completion ({error}): {_one_line(response.body)}") from error
        if not completion.choices:
            raise ChatApiError("the reply has no choice")
        return completion

    async def list_models(self) -> list[str]:
        """Return the ids of the endpoint's models; none if it does not list them.  Raises as :meth:`complete`."""
        response = await self._send("GET", "models", None)
        if response.status in {401, 403}:
            raise ChatApiStatusError(response.status, _one_line(response.body))
        try:
            return [model.id for model in _MODELS.decode(response.body).data] if response.status == 200 else []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return []

    async def _send(self, method: str, path: str, body: dict[str, object] | None) -> _Response:
        if self._session is None:
            raise RuntimeError("the client is not open")
        async with self._session.request(method, f"{self.url}/{path}", json=body) as response:
            received = bytearray()
            async for part in response.content.iter_any():
                received += part
                if len(received) > self._max_reply_bytes:
                    raise ChatApiError(f"the reply of {self.url} has more than {self._max_reply_bytes} bytes")
            return _Response(response.status, bytes(received))


def _one_line(body: bytes) -> str:
    return " ".join(body.decode(errors="replace").split())[:_SHOWN_CHARS]
