"""Everything of a trajectory but its arrays, as JSON."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from protocol.codec.errors import CodecError
from protocol.codec.fields import INT64, Fields
from protocol.codec.frames import Frame
from protocol.codec.turns import TurnColumns, columns, read_columns
from protocol.trajectory import GroupId, Reward, Status, TestResult, Ticket, Trajectory


@dataclass(frozen=True, slots=True)
class SegmentSpec:
    """A segment without its arrays."""

    length: int
    turns: TurnColumns
    parent: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """What was parsed, each field of the right type and in its range."""

    ticket: Ticket
    status: Status
    reward: Reward
    segments: tuple[SegmentSpec, ...]
    tests: tuple[TestResult, ...]
    engine: str
    node: str
    worker: str
    started_at: float
    timings_ms: dict[str, float]
    error: str

    @property
    def tokens(self) -> int:
        return sum(segment.length for segment in self.segments)


def write_header(trajectory: Trajectory) -> bytes:
    """Raises CodecError for what JSON cannot hold."""
    values: dict[str, object] = {
        "ticket": trajectory.ticket,
        "status": trajectory.status,
        "reward": trajectory.reward,
        "segments": [
            {
                "length": len(segment),
                "turns": columns(segment.turns),
                "parent": segment.parent,
                "offset": segment.offset,
            }
            for segment in trajectory.segments
        ],
        "tests": trajectory.tests,
        "engine": trajectory.engine,
        "node": trajectory.node,
        "worker": trajectory.worker,
        "started_at": trajectory.started_at,
        "timings_ms": trajectory.timings_ms,
        "error": trajectory.error,
    }
    try:
        return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise CodecError(f"trajectory {trajectory.ticket.trajectory_id} cannot be written as JSON: {error}") from error


def read_header(header: Frame) -> Header:
    """Raises CodecError, and nothing else, whatever the bytes are."""
    try:
        parsed: object = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise CodecError(f"header is not JSON: {error}") from error
    fields = Fields(parsed)
    reward = fields.child("reward")
    return Header(
        ticket=_ticket(fields.child("ticket")),
        status=_status(fields.text("status")),
        reward=Reward(reward.number("total"), reward.numbers("parts")),
        segments=tuple(_segment(index, spec) for index, spec in enumerate(fields.children("segments"))),
        tests=tuple(
            TestResult(test.text("name"), test.flag("passed"), test.number("weight"))
            for test in fields.children("tests")
        ),
        engine=fields.text("engine"),
        node=fields.text("node"),
        worker=fields.text("worker"),
        started_at=fields.number("started_at"),
        timings_ms=fields.numbers("timings_ms"),
        error=fields.text("error"),
    )


def _status(name: str) -> Status:
    try:
        return Status(name)
    except ValueError:
        raise CodecError(f"unknown status {name!r}") from None


def _ticket(fields: Fields) -> Ticket:
    size = fields.integer("group_size", 1)
    return Ticket(
        run_id=fields.text("run_id"),
        group=GroupId(fields.integer("group")),
        sample=fields.integer("sample", 0, size),
        group_size=size,
        task=fields.text("task"),
        seed=fields.integer("seed", -INT64),
        attempt=fields.integer("attempt"),
        purpose=fields.text("purpose"),
        vanished=fields.integer("vanished"),
        greedy=fields.flag("greedy"),
    )


def _segment(index: int, fields: Fields) -> SegmentSpec:
    length = fields.integer("length")
    turns = read_columns(fields.child("turns"), length)
    return SegmentSpec(length, turns, fields.integer("parent", -1, index), fields.integer("offset"))
