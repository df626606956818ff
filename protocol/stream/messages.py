"""The messages of :mod:`protocol.stream`, one JSON array ``[kind, field, …]`` each, and reasons of a refusal.

A ``StreamData`` message is followed by the frames of :mod:`protocol.codec`.  Offsets and credit are bytes of such
frames, counted from the epoch's start; an epoch starts with a ``StreamHello`` that has a higher number.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from protocol.errors import LongshoreError
from protocol.integers import UInt63

STREAM_PROTOCOL_VERSION = 2


class StreamMessageError(LongshoreError):
    """These bytes are not a message of this protocol."""


class RefusalReason(StrEnum):
    """Why a receiver refuses a message."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    OVER_CREDIT = "over_credit"
    FOREIGN_RUN = "foreign_run"
    PROTOCOL_VERSION = "protocol_version"
    NOT_FOR_TRAINING = "not_for_training"
    UNUSABLE = "unusable"
    """The trajectory is not of this run's model or weights."""
    UNAUTHENTICATED = "unauthenticated"
    HANDSHAKE = "handshake"
    """The peer does not speak ZeroMQ, or disconnected during the handshake."""


class _StreamMessageBase(
    msgspec.Struct,
    frozen=True,
    array_like=True,
    forbid_unknown_fields=True,
    tag=lambda name: name.removeprefix("Stream").lower(),
):
    pass


class StreamHello(_StreamMessageBase, frozen=True):
    """Sender: start of an epoch, from which bytes are counted."""

    protocol: UInt63
    run_id: str
    sender: str
    epoch: UInt63


class StreamData(_StreamMessageBase, frozen=True):
    """Sender: a trajectory."""

    epoch: UInt63
    seq: UInt63


class StreamPing(_StreamMessageBase, frozen=True):
    """Sender: number of bytes sent before this message in this epoch."""

    epoch: UInt63
    sent: UInt63


class StreamBye(_StreamMessageBase, frozen=True):
    """Sender: end of the connection."""


class StreamWelcome(_StreamMessageBase, frozen=True):
    """Receiver: answer to a hello."""

    epoch: UInt63
    credit: UInt63
    max_bytes: UInt63


class StreamAck(_StreamMessageBase, frozen=True):
    """Receiver: outcomes of trajectories that are durable."""

    epoch: UInt63
    credit: UInt63
    seqs: list[UInt63]
    outcomes: list[str]
    """Outcomes, one per entry of ``seqs``."""


class StreamNack(_StreamMessageBase, frozen=True):
    """Receiver: this message, or for ``seq`` 0 this sender, is refused; sending again does not help."""

    seq: UInt63
    reason: str
    detail: str


class StreamState(_StreamMessageBase, frozen=True):
    """Receiver: answer to a ping.  Everything up to offset ``done`` was answered before this message."""

    epoch: UInt63
    done: UInt63
    credit: UInt63


class StreamResync(_StreamMessageBase, frozen=True):
    """Receiver: data of this epoch is missing; start another."""

    epoch: UInt63


StreamMessage: TypeAlias = (
    StreamHello
    | StreamData
    | StreamPing
    | StreamBye
    | StreamWelcome
    | StreamAck
    | StreamNack
    | StreamState
    | StreamResync
)

MAX_ACK_SEQS = 256
"""Maximum number of trajectories in one ``StreamAck``."""
_MAX_BYTES = 16384
_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(StreamMessage)


def message_kind(message: StreamMessage) -> str:
    """The kind of a message as the wire names it."""
    return type(message).__name__.removeprefix("Stream").lower()


def encode_message(message: StreamMessage) -> bytes:
    return _ENCODER.encode(message)


def decode_message(frame: bytes | memoryview) -> StreamMessage:
    """Decode a message.  Raises StreamMessageError, and nothing else, for any bytes."""
    if len(frame) > _MAX_BYTES:
        raise StreamMessageError(f"control frame of {len(frame)} bytes")
    try:
        message = _DECODER.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StreamMessageError(f"control frame: {error}") from None
    if isinstance(message, StreamAck) and len(message.seqs) != len(message.outcomes):
        raise StreamMessageError("ack.outcomes has another length than ack.seqs")
    return message
