"""Reads the tokens of a segment with their staleness, use and log-probabilities."""

from __future__ import annotations

import numpy as np

from launch.monitor.api_types import Number, TokenPage, TokenUse, TrajectoryState
from launch.monitor.archive.step_table import finite_or_none
from launch.monitor.archive.token_facts import LocatedTrajectory, ReadContext, TokenArrays, read_trajectory_record
from launch.monitor.archive.trajectory_table import Array
from protocol.run_directory.trained_log import TokenLossFlag
from protocol.trajectory import ASIDES, DropReason, Segment, TurnKind
from protocol.weights import format_version

MAX_TOKENS = 4_000
"""Maximum number of tokens of a page."""


def read_token_page(
    context: ReadContext, where: LocatedTrajectory, segment: int, start: int, limit: int
) -> TokenPage | None:
    """Return a page of tokens; None if there is no such segment.  Raises UnreadableTrajectoryError."""
    read = read_trajectory_record(context, where)
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
        text=context.vocabulary.decode_each(ids),
        logprob=to_json_numbers(logprobs),
        probability=to_json_numbers(np.exp(logprobs)),
        version=[format_version(version) if version >= 0 else "" for version in own.versions[here].tolist()],
        staleness=[steps if steps >= 0 else None for steps in tokens.staleness[here].tolist()],
        use=_uses(own, tokens, where, context.max_staleness)[here],
        learner_logprob=to_json_numbers(tokens.logprobs[here]),
        logprob_gap=to_json_numbers(tokens.logprobs[here] - logprobs),
        advantage=to_json_numbers(tokens.advantages[here]),
    )


def _uses(segment: Segment, tokens: TokenArrays, where: LocatedTrajectory, bound: Number) -> list[TokenUse]:
    """Return the use of each token; later rules override earlier ones."""
    found = np.full(len(segment), TokenUse.PROMPT, object)
    for turn in segment.turns:
        if turn.kind is TurnKind.OBSERVATION:
            found[turn.start : turn.end] = TokenUse.OBSERVATION
        elif turn.role in ASIDES:
            found[turn.start : turn.end] = TokenUse(turn.role)
    sampled, stale = segment.loss_mask == 1, tokens.staleness > (np.inf if bound is None else bound)
    match where.row.state:
        case TrajectoryState.BUFFERED:
            found[sampled] = TokenUse.WAITING
        case TrajectoryState.DROPPED:
            found[sampled] = TokenUse.DROPPED
            if where.row.reason == DropReason.ALL_STALE:
                found[sampled & stale] = TokenUse.STALE
        case TrajectoryState.TRAINED:
            has_loss = ~np.isnan(tokens.logprobs) if where.used.file else sampled & ~stale
            found[sampled] = TokenUse.UNTRAINED
            found[sampled & stale] = TokenUse.STALE
            found[has_loss] = TokenUse.TRAINED
            for flag, use in _USE_OF_FLAG.items():
                found[(tokens.marks & flag.value) > 0] = use
    return found.tolist()


_USE_OF_FLAG = {
    TokenLossFlag.LOW: TokenUse.CLIP_LOW,
    TokenLossFlag.HIGH: TokenUse.CLIP_HIGH,
    TokenLossFlag.DUAL: TokenUse.CLIP_DUAL,
    TokenLossFlag.CORRECTED: TokenUse.CORRECTED,
}


def to_json_numbers(values: Array) -> list[Number]:
    """Return rounded values, with None for NaN."""
    return [None if value != value else round_for_display(value) for value in values.tolist()]  # noqa: PLR0124  NaN is not itself


def round_for_display(value: float) -> float | None:
    """Round to the precision that people read."""
    return finite_or_none(float(f"{value:.5g}"))
