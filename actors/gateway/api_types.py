"""Types that the HTTP layer uses for all APIs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Annotated, Protocol

import msgspec

from actors.gateway.chat_request import ChatRequest, GatewayRequestError, describe_json_error
from actors.gateway.completion import GatewayCompletion, ParsedCompletion

Positive = Annotated[int, msgspec.Meta(ge=1)]
StopText = Annotated[str, msgspec.Meta(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """A parsed request."""

    request: ChatRequest
    stream: bool = False
    usage_in_stream: bool = True
    thoughts: bool = True
    """True if the harness wants to see the model's thoughts."""


@dataclass(frozen=True, slots=True)
class ResponseMetadata:
    """Metadata of a response."""

    model: str
    created: int
    """Unix seconds at which the model was created."""
    id: str = field(default_factory=lambda: secrets.token_hex(12))

    def tool_call_id(self, index: int) -> str:
        """Return the id of a tool call."""
        return f"{self.id}-{index}"


class StreamEncoder(Protocol):
    """Encodes a reply as server-sent events of one API.  Each call returns the events that follow those sent before."""

    ping: bytes
    """An event that clients ignore."""

    def encode_partial(self, parsed: ParsedCompletion, prompt_tokens: int) -> bytes:
        """Return the events up to ``parsed``, a prefix of the final reply; empty if they were sent already."""
        ...

    def encode_end(self, answer: GatewayCompletion) -> bytes: ...

    def encode_failure(self, refused: GatewayRequestError) -> bytes:
        """Return the event of a failure, after which no more follow."""
        ...


class ReplyEncoder(Protocol):
    """Encoder of one API's replies, implemented by a module of functions."""

    def encode_reply(self, call: ApiCall, answer: GatewayCompletion, named: ResponseMetadata) -> bytes:
        """Return the body of a reply that is not streamed."""
        ...

    def stream_encoder(self, call: ApiCall, named: ResponseMetadata) -> StreamEncoder:
        """Return the encoder of a streamed reply."""
        ...


class ResponseEncoder(ReplyEncoder, Protocol):
    """Encoder of all responses of one API, errors included."""

    def encode_models(self, names: list[str], created: int) -> bytes: ...

    def encode_model(self, name: str, created: int) -> bytes: ...

    def encode_error(self, refused: GatewayRequestError) -> bytes: ...


def encode_json(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def parse_tool_arguments(text: str | dict[str, object] | None, what: str) -> dict[str, object]:
    """Parse a call's arguments, unless they are parsed already; None and an empty text are no arguments.  Raises
    :class:`GatewayRequestError`, which names ``what``, if they are not a JSON object."""
    if isinstance(text, dict):
        return text
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GatewayRequestError(
            f"the arguments of {what} are not a JSON object: {describe_json_error(text or '', error)}",
            parameter="messages",
        ) from error
