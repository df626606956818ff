"""What became of each token of a segment."""

from __future__ import annotations

import numpy as np

from launch.monitor.archive.columns import Array
from launch.monitor.archive.reading import Known, Located, TokenArrays, read_record
from launch.monitor.archive.steps import finite
from launch.monitor.shapes import Fate, Number, State, TokenPage
from protocol.trained import Mark
from protocol.trajectory import DropReason, Segment, TurnKind
from protocol.weights import version_label

MAX_TOKENS = 4_000
"""Of a page."""


def token_page(known: Known, where: Located, segment: int, start: int, limit: int) -> TokenPage | None:
    """None where there is no such segment.  Raises UnreadableError."""
    read = read_record(known, where)
    if not 0 <= segment < len(read.trajectory.segments):
        return None
    own, tokens = read.trajectory.segments[segment], read.tokens[segment]
    end = min(len(own), start + min(limit, MAX_TOKENS))
    here = slice(min(start, end), end)
    sampled = own.loss_mask[here] == 1
    logprobs = np.where(sampled, own.logprobs[here], np.nan)
    ids = own.token_ids[here].tolist()
    return TokenPage(
        segment=segment,
        start=here.start,
        end=end,
        total=len(own),
        id=ids,
        text=known.vocabulary.pieces(ids),
        logprob=numbers(logprobs),
        probability=numbers(np.exp(logprobs)),
        version=[version_label(version) if version >= 0 else "" for version in own.versions[here].tolist()],
        age=[age if age >= 0 else None for age in tokens.ages[here].tolist()],
        fate=_fates(own, tokens, where, known.age_bound)[here],
        learner_logprob=numbers(tokens.logprobs[here]),
        gap=numbers(tokens.logprobs[here] - logprobs),
        advantage=numbers(tokens.advantages[here]),
    )


def _fates(segment: Segment, tokens: TokenArrays, where: Located, bound: Number) -> list[Fate]:
    """What became of each token, the strongest word last."""
    found = np.full(len(segment), Fate.PROMPT, object)
    for turn in segment.turns:
        if turn.kind is TurnKind.OBSERVATION:
            found[turn.start : turn.end] = Fate.OBSERVATION
    sampled, stale = segment.loss_mask == 1, tokens.ages > (np.inf if bound is None else bound)
    match where.row.state:
        case State.HELD:
            found[sampled] = Fate.WAITING
        case State.DROPPED:
            found[sampled] = Fate.DROPPED
            if where.row.reason == DropReason.ALL_STALE:
                found[sampled & stale] = Fate.STALE
        case State.TRAINED:
            has_loss = ~np.isnan(tokens.logprobs) if where.used.segment else sampled & ~stale
            found[sampled] = Fate.UNTRAINED
            found[sampled & stale] = Fate.STALE
            found[has_loss] = Fate.TRAINED
            for mark, fate in _FATE_OF_MARK.items():
                found[(tokens.marks & mark.value) > 0] = fate
    return found.tolist()


_FATE_OF_MARK = {
    Mark.LOW: Fate.CLIP_LOW,
    Mark.HIGH: Fate.CLIP_HIGH,
    Mark.DUAL: Fate.CLIP_DUAL,
    Mark.CORRECTED: Fate.CORRECTED,
}


def numbers(values: Array) -> list[Number]:
    return [None if value != value else short(value) for value in values.tolist()]  # noqa: PLR0124  NaN is not itself


def short(value: float) -> float | None:
    """As far as anybody reads it."""
    return finite(float(f"{value:.5g}"))
