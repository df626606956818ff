"""What the two APIs have in common, as HTTP sees them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Annotated, Protocol

import msgspec

from actors.gateway.chat_request import ChatRequest, GatewayRequestError
from actors.gateway.completion import GatewayCompletion, ParsedCompletion

Positive = Annotated[int, msgspec.Meta(ge=1)]
StopText = Annotated[str, msgspec.Meta(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """A request that was read."""

    request: ChatRequest
    stream: bool = False
    usage_in_stream: bool = True
    thoughts: bool = True
    """The harness wants to see them."""


@dataclass(frozen=True, slots=True)
class ResponseMetadata:
    """Beside an answer, what an API says of it."""

    model: str
    created: int
    """Unix seconds."""
    id: str = field(default_factory=lambda: secrets.token_hex(12))

    def tool_call_id(self, index: int) -> str:
        """Of a tool call."""
        return f"{self.id}-{index}"


class StreamEncoder(Protocol):
    """A reply as server-sent events, in one API's words.  Each call gives those that come to what was told."""

    ping: bytes
    """Which clients pass over."""

    def encode_partial(self, said: ParsedCompletion, prompt_tokens: int) -> bytes:
        """The beginning of what will have been said is this; nothing where that is known."""
        ...

    def encode_end(self, answer: GatewayCompletion) -> bytes: ...

    def encode_failure(self, refused: GatewayRequestError) -> bytes:
        """There will be no more of it."""
        ...


class ResponseEncoder(Protocol):
    """How one API says things; a module of functions."""

    def encode_reply(self, call: ApiCall, answer: GatewayCompletion, named: ResponseMetadata) -> bytes:
        """The body of a reply that is not streamed."""
        ...

    def stream_encoder(self, call: ApiCall, named: ResponseMetadata) -> StreamEncoder:
        """Of one that is."""
        ...

    def encode_models(self, names: list[str], created: int) -> bytes: ...

    def encode_model(self, name: str, created: int) -> bytes: ...

    def encode_error(self, refused: GatewayRequestError) -> bytes: ...


def encode_json(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def parse_tool_arguments(text: str, what: str) -> dict[str, object]:
    """A call's arguments from their JSON.  Raises :class:`Refused` where that is no object; ``what`` says whose."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GatewayRequestError(
            f"the arguments of {what} are no JSON object: {error}", parameter="messages"
        ) from error
