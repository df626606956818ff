"""The parts of a timeline: spans, marks and levels, each on a track."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from protocol.events import JsonValue


class TraceTrack(NamedTuple):
    """A track: ``process`` and ``name`` are for people; spans on one track nest."""

    process: str
    name: str


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span of time on a track, in unix seconds."""

    track: TraceTrack
    name: str
    begin_s: float
    end_s: float
    args: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class TraceInstant:
    """Something that happened at one moment."""

    track: TraceTrack
    name: str
    at_s: float
    args: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class TraceCounter:
    """A count that holds until the next one of its track."""

    track: TraceTrack
    at_s: float
    values: Mapping[str, float]


TraceEvent: TypeAlias = TraceSpan | TraceInstant | TraceCounter


class TimeWindow(NamedTuple):
    """A window of time in unix seconds."""

    begin_s: float
    end_s: float

    def clip(self, pieces: Iterable[TraceEvent]) -> list[TraceEvent]:
        """Return what lies in the window; spans that reach beyond it end at its bounds, and a level that held before
        it begins with it."""
        found: list[TraceEvent] = []
        before: dict[tuple[TraceTrack, frozenset[str]], TraceCounter] = {}
        for piece in pieces:
            if isinstance(piece, TraceSpan):
                begin_s, end_s = max(piece.begin_s, self.begin_s), min(piece.end_s, self.end_s)
                if begin_s <= end_s and piece.end_s >= self.begin_s and piece.begin_s <= self.end_s:
                    found.append(replace(piece, begin_s=begin_s, end_s=end_s))
            elif self.begin_s <= piece.at_s <= self.end_s:
                found.append(piece)
            elif isinstance(piece, TraceCounter) and piece.at_s < self.begin_s:
                before[piece.track, frozenset(piece.values)] = piece
        return [*(replace(level, at_s=self.begin_s) for level in before.values()), *found]


def assign_tracks(spans: Sequence[TraceSpan]) -> list[int]:
    """Return a track number for each span, from 0, as few as possible; spans of one track do not overlap."""
    ends: list[float] = []
    found = [0] * len(spans)
    for index in sorted(range(len(spans)), key=lambda index: (spans[index].begin_s, spans[index].end_s)):
        span = spans[index]
        free = next((number for number, end_s in enumerate(ends) if end_s <= span.begin_s), len(ends))
        if free == len(ends):
            ends.append(0.0)
        ends[free], found[index] = span.end_s, free
    return found


def nest_spans(spans: Sequence[TraceSpan]) -> list[TraceSpan]:
    """Return the spans so that of two overlapping ones on a track one contains the other: a span that would end
    outside of the one in which it begins, as clocks and roundings have it at times, begins where that ends."""
    waiting = [(span.track, span.begin_s, -span.end_s, number, span) for number, span in enumerate(spans)]
    heapq.heapify(waiting)
    found: list[TraceSpan] = []
    around: list[TraceSpan] = []
    while waiting:
        track, begin_s, _, number, span = heapq.heappop(waiting)
        while around and (around[-1].track != track or around[-1].end_s <= begin_s):
            around.pop()
        if around and span.end_s > around[-1].end_s:
            later = replace(span, begin_s=around[-1].end_s)
            heapq.heappush(waiting, (track, later.begin_s, -later.end_s, number, later))
            continue
        found.append(span)
        around.append(span)
    return found
