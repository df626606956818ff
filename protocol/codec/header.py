"""The JSON header of a trajectory: everything but its arrays, with its schema as types.

Turns are stored as columns, one list per field, so that a check runs once per column and not once per turn.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Annotated, Any, TypeAlias

import msgspec
import orjson
from msgspec import Meta

from protocol.codec.errors import CodecError
from protocol.codec.frames import Frame
from protocol.integers import INT64_MAX, Int64, UInt63
from protocol.trajectory import (
    EpisodeStatus,
    GroupId,
    ReplyRole,
    Reward,
    RolloutRequest,
    TestResult,
    Trajectory,
    Turn,
    TurnKind,
)

_Index: TypeAlias = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
_Finite: TypeAlias = Annotated[float, Meta(ge=-1e308, le=1e308)]


class _TurnColumns(msgspec.Struct):
    """Columns of equal length in the order of :class:`Turn`'s fields; a column with a default may be left out if
    zero or empty."""

    kind: list[TurnKind]
    start: list[UInt63]
    end: list[UInt63]
    tool: list[str]
    exit_code: list[Int64 | None]
    duration_ms: list[_Finite]
    key_version: list[_Index]
    mixed_prefix: list[bool]
    malformed: list[bool]
    reward: list[_Finite] = []
    server_switches: list[UInt63] = []
    role: list[ReplyRole] = []
    number: list[UInt63] = []

    def __post_init__(self) -> None:
        self.reward = self.reward or [0.0] * len(self.kind)
        self.server_switches = self.server_switches or [0] * len(self.kind)
        self.role = self.role or [ReplyRole.WORK] * len(self.kind)
        self.number = self.number or [0] * len(self.kind)

    def columns(self) -> tuple[list[Any], ...]:
        return _COLUMNS(self)


_COLUMNS: Callable[[_TurnColumns], tuple[Any, ...]] = operator.attrgetter(*_TurnColumns.__struct_fields__)


class SegmentHeader(msgspec.Struct):
    """A segment without its arrays."""

    length: UInt63
    turns: _TurnColumns
    parent: _Index
    offset: UInt63

    def read_turns(self) -> tuple[Turn, ...]:
        return tuple(Turn(*values) for values in zip(*self.turns.columns(), strict=True))


class _RequestHeader(msgspec.Struct):
    run_id: str
    group: UInt63
    sample: UInt63
    group_size: UInt63
    task: str
    seed: Int64
    attempt: UInt63
    purpose: str
    vanished_sandboxes: UInt63
    greedy: bool


_REQUEST_FIELDS: Callable[[_RequestHeader], tuple[Any, ...]] = operator.attrgetter(*_RequestHeader.__struct_fields__)


class _Reward(msgspec.Struct):
    total: _Finite
    parts: dict[str, _Finite]


class _Test(msgspec.Struct):
    name: str
    passed: bool
    weight: _Finite


class TrajectoryHeader(msgspec.Struct):
    """A parsed header: each field has the right type and range."""

    request: _RequestHeader
    status: EpisodeStatus
    reward: _Reward
    segments: list[SegmentHeader]
    tests: list[_Test]
    engine: str
    node: str
    worker: str
    started_at: _Finite
    timings_ms: dict[str, _Finite]
    error: str

    @property
    def passed(self) -> bool:
        return bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def tokens(self) -> int:
        return sum(segment.length for segment in self.segments)

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest segment together with those that precede it."""
        return max((segment.offset + segment.length for segment in self.segments), default=0)

    @property
    def largest_reward(self) -> float:
        """Largest absolute value of its reward, the parts of it, the turns' own rewards and the tests' weights."""
        values = chain(
            (self.reward.total,),
            self.reward.parts.values(),
            *(segment.turns.reward for segment in self.segments),
            (test.weight for test in self.tests),
        )
        return max(map(abs, values))

    def read_request(self) -> RolloutRequest:
        run_id, group, *others = _REQUEST_FIELDS(self.request)
        return RolloutRequest(run_id, GroupId(group), *others)

    def read_reward(self) -> Reward:
        return Reward(self.reward.total, self.reward.parts)

    def read_tests(self) -> tuple[TestResult, ...]:
        return tuple(TestResult(test.name, test.passed, test.weight) for test in self.tests)


_OPTIONAL_COLUMNS = ("reward", "server_switches", "role", "number")
_DECODER = msgspec.json.Decoder(TrajectoryHeader)
_EMPTY: tuple[tuple[Any, ...], ...] = ((),) * len(_TurnColumns.__struct_fields__)


def write_header(trajectory: Trajectory) -> bytes:
    """Encode the header.  Raises CodecError for values that JSON cannot hold."""
    values: dict[str, object] = {
        "request": trajectory.request,
        "status": trajectory.status,
        "reward": trajectory.reward,
        "segments": [
            {
                "length": len(segment),
                "turns": _columns(segment.turns),
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
        raise CodecError(f"trajectory {trajectory.request.trajectory_id} cannot be written as JSON: {error}") from error


def _columns(turns: Sequence[Turn]) -> dict[str, tuple[Any, ...]]:
    columns = tuple(zip(*turns, strict=True)) or _EMPTY
    named = dict(zip(_TurnColumns.__struct_fields__, columns, strict=True))
    for name in _OPTIONAL_COLUMNS:
        if not any(named[name]):
            del named[name]
    return named


def read_header(frame: Frame) -> TrajectoryHeader:
    """Parse and check a header.  Raises CodecError, and nothing else, for any bytes."""
    try:
        header = _DECODER.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"header: {error}") from error
    if header.request.sample >= header.request.group_size:
        raise CodecError(f"sample {header.request.sample} of a group of {header.request.group_size}")
    whole: list[int] = []  # tokens of each segment including its prefix
    for index, segment in enumerate(header.segments):
        if segment.parent >= index:
            raise CodecError(f"segment {index} has parent {segment.parent}")
        before = whole[segment.parent] if segment.parent >= 0 else 0
        if segment.offset > before:
            raise CodecError(f"segment {index} begins after {segment.offset} tokens, and there are {before} before it")
        whole.append(segment.offset + segment.length)
        turns = segment.turns
        if len(set(map(len, turns.columns()))) > 1:
            raise CodecError(f"segment {index} has columns of turns of different lengths")
        ends_late = max(turns.end, default=0) > segment.length
        if ends_late or not all(map(operator.le, turns.start, turns.end)):
            raise CodecError(f"a turn's start or end is outside of the {segment.length} tokens of segment {index}")
    return header
