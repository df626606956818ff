"""What the two APIs have in common, as HTTP sees them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Annotated, Protocol

import msgspec

from actors.gateway.answer import Answer, Said
from actors.gateway.asked import Asked, Refused

Positive = Annotated[int, msgspec.Meta(ge=1)]
StopText = Annotated[str, msgspec.Meta(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that was read."""

    asked: Asked
    stream: bool = False
    usage_in_stream: bool = True
    thoughts: bool = True
    """The harness wants to see them."""


@dataclass(frozen=True, slots=True)
class Named:
    """Beside an answer, what an API says of it."""

    model: str
    created: int
    """Unix seconds."""
    id: str = field(default_factory=lambda: secrets.token_hex(12))

    def call_id(self, index: int) -> str:
        """Of a tool call."""
        return f"{self.id}-{index}"


class Events(Protocol):
    """A reply as server-sent events, in one API's words.  Each call gives those that come to what was told."""

    ping: bytes
    """Which clients pass over."""

    def more(self, said: Said, prompt_tokens: int) -> bytes:
        """The beginning of what will have been said is this; nothing where that is known."""
        ...

    def end(self, answer: Answer) -> bytes: ...

    def failed(self, refused: Refused) -> bytes:
        """There will be no more of it."""
        ...


class Replies(Protocol):
    """How one API says things; a module of functions."""

    def whole(self, call: Call, answer: Answer, named: Named) -> bytes:
        """The body of a reply that is not streamed."""
        ...

    def events(self, call: Call, named: Named) -> Events:
        """Of one that is."""
        ...

    def models(self, names: list[str], created: int) -> bytes: ...

    def model(self, name: str, created: int) -> bytes: ...

    def refusal(self, refused: Refused) -> bytes: ...


def encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def arguments_of(text: str, what: str) -> dict[str, object]:
    """A call's arguments from their JSON.  Raises :class:`Refused` where that is no object; ``what`` says whose."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"the arguments of {what} are no JSON object: {error}", parameter="messages") from error
