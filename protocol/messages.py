"""The messages of :mod:`protocol.stream`: one JSON array ``[kind, field, …]`` each, and what a receiver may refuse.

A ``Data`` message is followed by the frames of :mod:`protocol.codec`.  Offsets and credit are bytes of such frames,
counted from the epoch's start; an epoch starts with a ``Hello`` that has a higher number.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

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


_Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=str.lower):
    pass


class Hello(_Message, frozen=True):
    """Sender: here I am; count from here."""

    protocol: _Count
    run_id: str
    sender: str
    epoch: _Count


class Data(_Message, frozen=True):
    """Sender: a trajectory."""

    epoch: _Count
    seq: _Count


class Ping(_Message, frozen=True):
    """Sender: so many bytes went before this message in this epoch."""

    epoch: _Count
    sent: _Count


class Bye(_Message, frozen=True):
    """Sender: nothing more will come."""


class Welcome(_Message, frozen=True):
    """Receiver: answer to a hello."""

    epoch: _Count
    credit: _Count
    max_bytes: _Count


class Ack(_Message, frozen=True):
    """Receiver: what became of these trajectories, after they are durable."""

    epoch: _Count
    credit: _Count
    seqs: list[_Count]
    outcomes: list[str]
    """As many as ``seqs``."""


class Nack(_Message, frozen=True):
    """Receiver: this message (``seq`` 0: this sender) is refused; asking again is no use."""

    seq: _Count
    reason: str
    detail: str


class State(_Message, frozen=True):
    """Receiver: answer to a ping.  Everything up to offset ``done`` was answered before this message."""

    epoch: _Count
    done: _Count
    credit: _Count


class Resync(_Message, frozen=True):
    """Receiver: something of this epoch is missing here; start another."""

    epoch: _Count


Message: TypeAlias = Hello | Data | Ping | Bye | Welcome | Ack | Nack | State | Resync

MAX_ANSWERS = 256
"""Most trajectories that one ``Ack`` names."""
_MAX_BYTES = 16384
_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(Message)


def write_message(message: Message) -> bytes:
    return _ENCODER.encode(message)


def read_message(frame: bytes | memoryview) -> Message:
    """Raises MessageError, and nothing else, whatever the bytes are."""
    if len(frame) > _MAX_BYTES:
        raise MessageError(f"control frame of {len(frame)} bytes")
    try:
        message = _DECODER.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"control frame: {error}") from None
    if isinstance(message, Ack) and len(message.seqs) != len(message.outcomes):
        raise MessageError("ack.outcomes has another length than ack.seqs")
    return message
