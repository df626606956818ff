"""The messages of :mod:`protocol.stream`: one JSON array ``[kind, field, …]`` each, and what a receiver may refuse.

A ``Data`` message is followed by the frames of :mod:`protocol.codec`.  Offsets and credit are bytes of such frames,
counted from the epoch's start; an epoch starts with a ``Hello`` that has a higher number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from typing import TypeAlias, cast

import orjson

from protocol.errors import LongshoreError

PROTOCOL = 1


class MessageError(LongshoreError):
    """These bytes are not a message of this protocol."""


class Refusal(StrEnum):
    """Why a receiver refuses a message."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    OVER_CREDIT = "over_credit"
    FOREIGN_RUN = "foreign_run"
    PROTOCOL_VERSION = "protocol_version"
    NOT_FOR_TRAINING = "not_for_training"
    UNAUTHENTICATED = "unauthenticated"


@dataclass(frozen=True, slots=True)
class Hello:
    """Sender: here I am; count from here."""

    protocol: int
    run_id: str
    sender: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Data:
    """Sender: a trajectory."""

    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Sender: so many bytes went before this message in this epoch."""

    epoch: int
    sent: int


@dataclass(frozen=True, slots=True)
class Bye:
    """Sender: nothing more will come."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """Receiver: answer to a hello."""

    epoch: int
    credit: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Receiver: what became of a trajectory, after it is durable."""

    seq: int
    outcome: str
    credit: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Nack:
    """Receiver: this message (``seq`` 0: this sender) is refused; asking again is no use."""

    seq: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class State:
    """Receiver: answer to a ping.  Everything up to offset ``done`` was answered before this message."""

    epoch: int
    done: int
    credit: int


@dataclass(frozen=True, slots=True)
class Resync:
    """Receiver: something of this epoch is missing here; start another."""

    epoch: int


Message: TypeAlias = Hello | Data | Ping | Bye | Welcome | Ack | Nack | State | Resync

_KINDS: dict[str, type[Message]] = {
    kind.__name__.lower(): kind for kind in (Hello, Data, Ping, Bye, Welcome, Ack, Nack, State, Resync)
}
_MAX_BYTES = 8192
_TYPES = {"int": int, "str": str}


def write_message(message: Message) -> bytes:
    return orjson.dumps([type(message).__name__.lower(), *astuple(message)])


def read_message(frame: bytes) -> Message:
    """Raises MessageError, and nothing else, whatever the bytes are."""
    if len(frame) > _MAX_BYTES:
        raise MessageError(f"control frame of {len(frame)} bytes")
    try:
        values: object = orjson.loads(frame)
    except orjson.JSONDecodeError:
        raise MessageError("control frame is not JSON") from None
    if not isinstance(values, list) or not values:
        raise MessageError("control frame is not a JSON array")
    name, *arguments = cast("list[object]", values)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise MessageError("unknown kind of message")
    expected = fields(kind)
    if len(arguments) != len(expected):
        raise MessageError(f"{name} has {len(arguments)} fields instead of {len(expected)}")
    for field, value in zip(expected, arguments, strict=True):
        right = _TYPES[str(field.type)]
        if type(value) is not right or (isinstance(value, int) and value < 0):
            raise MessageError(f"{name}.{field.name} is wrong")
    return cast("Callable[..., Message]", kind)(*arguments)
