"""The messages of :mod:`protocol.stream`: one JSON array ``[kind, field, …]`` each, and what a receiver may refuse.

A ``Data`` message is followed by the frames of :mod:`protocol.codec`.  Offsets and credit are bytes of such frames,
counted from the epoch's start; an epoch starts with a ``Hello`` that has a higher number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias, cast

import orjson

from protocol.errors import LongshoreError

PROTOCOL = 2


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
    HANDSHAKE = "handshake"
    """It is no ZeroMQ, or was gone before that could be said."""


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
    """Receiver: what became of these trajectories, after they are durable."""

    epoch: int
    credit: int
    seqs: list[int]
    outcomes: list[str]
    """As many as ``seqs``."""


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

MAX_ANSWERS = 256
"""Most trajectories that one ``Ack`` names."""
_MAX_BYTES = 16384


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_list(of: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(of, cast("list[object]", value)))


_CHECKS = {"int": _is_count, "str": _is_text, "list[int]": _is_list(_is_count), "list[str]": _is_list(_is_text)}


class _Kind(NamedTuple):
    make: Callable[..., Message]
    checks: tuple[tuple[str, Callable[[object], bool]], ...]
    """Of each field: its name, and what its value must be."""


def _kind(message: type[Any]) -> _Kind:
    return _Kind(message, tuple((field.name, _CHECKS[str(field.type)]) for field in fields(message)))


_KINDS = {
    message.__name__.lower(): _kind(message) for message in (Hello, Data, Ping, Bye, Welcome, Ack, Nack, State, Resync)
}
_VALUES = {name: tuple(operator.attrgetter(field) for field, _ in kind.checks) for name, kind in _KINDS.items()}


def write_message(message: Message) -> bytes:
    name = type(message).__name__.lower()
    return orjson.dumps([name, *(value(message) for value in _VALUES[name])])


def read_message(frame: bytes | memoryview) -> Message:
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
    if len(arguments) != len(kind.checks):
        raise MessageError(f"{name} has {len(arguments)} fields instead of {len(kind.checks)}")
    for (field, right), value in zip(kind.checks, arguments, strict=True):
        if not right(value):
            raise MessageError(f"{name}.{field} is wrong")
    message = kind.make(*arguments)
    if isinstance(message, Ack) and len(message.seqs) != len(message.outcomes):
        raise MessageError("ack.outcomes has another length than ack.seqs")
    return message
