"""Turns a trajectory's segments into training sequences, with numpy only.

A segment that continues another one is joined with it, so a linear episode is one sequence and no token is computed
twice; a branch is a separate sequence, whose prefix has no loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from learner.data.micro_batches import TrainingSample
from learner.losses.token_columns import TokenArray, make_token_columns
from protocol.trajectory import Int32Array, Segment, Turn, TurnKind, Uint8Array


def iterate_model_turns(segments: Sequence[Segment]) -> Iterator[tuple[int, int, Turn]]:
    """Yield (index of the turn, index of its segment, turn) of each turn of the model with loss, in order."""
    index = 0
    for segment_index, segment in enumerate(segments):
        for turn in segment.turns:
            if turn.kind is TurnKind.MODEL and segment.loss_mask[turn.start : turn.end].any():
                yield index, segment_index, turn
                index += 1


def token_turn_indices(segments: Sequence[Segment]) -> list[TokenArray]:
    """Return per segment int64 [T]: the index of the token's model turn, or 0 if it is in none."""
    found: list[TokenArray] = [np.zeros(len(segment), np.int64) for segment in segments]
    for index, segment_index, turn in iterate_model_turns(segments):
        found[segment_index][turn.start : turn.end] = index
    return found


def on_policy_tokens(segment: Segment, staleness: Int32Array) -> TokenArray:
    """Return bool [T]: true for tokens of turns that weights of staleness 0 sampled as a whole, on a prefix that they
    also computed."""
    found = np.zeros(len(segment), np.bool_)
    for turn in segment.turns:
        here = slice(turn.start, turn.end)
        if turn.kind is TurnKind.MODEL and not turn.mixed_prefix:
            sampled = segment.loss_mask[here] == 1
            alike = (segment.versions[here] == turn.key_version) & (staleness[here] == 0)
            found[here] = sampled & alike[sampled].all()
    return found


def make_samples(
    segments: Sequence[Segment],
    masks: Sequence[Uint8Array],
    staleness: Sequence[Int32Array],
    advantages: Sequence[TokenArray],
    *,
    weight: float,
    origin: int,
) -> list[TrainingSample]:
    """Return one sample per sequence with a loss token.  ``masks``, ``staleness`` and ``advantages`` are per segment;
    all tokens have the loss weight ``weight``; ``origin`` is the trajectory's index in its batch."""
    found: list[TrainingSample] = []
    every = np.split(np.arange(sum(map(len, segments))), np.cumsum([len(segment) for segment in segments])[:-1])
    for chain in _chains(segments):
        parts = [segments[index] for index in chain]
        prefix = _prefix(segments, parts[0])
        own = np.flatnonzero(np.concatenate([masks[index] for index in chain]))
        if len(own) and own[0] + len(prefix) == 0:  # nothing predicts the very first token
            own = own[1:]
        if len(own):
            made = make_token_columns(
                np.concatenate([part.logprobs for part in parts])[own],
                np.concatenate([advantages[index] for index in chain])[own],
                weight,
                np.concatenate([staleness[index] for index in chain])[own],
                np.concatenate([on_policy_tokens(segments[index], staleness[index]) for index in chain])[own],
            )
            tokens = np.concatenate([prefix, *(part.token_ids for part in parts)])
            segment_indexs = np.concatenate([every[index] for index in chain])[own]
            found.append(TrainingSample(tokens, (own + len(prefix)).astype(np.int64), made, origin, segment_indexs))
    return found


def join_sequences(segments: Sequence[Segment]) -> list[tuple[Int32Array, Uint8Array]]:
    """Return token ids and loss mask of each sequence with a sampled token; each sampled token has loss in one
    sequence."""
    found: list[tuple[Int32Array, Uint8Array]] = []
    for chain in _chains(segments):
        parts = [segments[index] for index in chain]
        prefix = _prefix(segments, parts[0])
        mask = np.concatenate([np.zeros(len(prefix), np.uint8), *(part.loss_mask for part in parts)])
        if mask.any():
            found.append((np.concatenate([prefix, *(part.token_ids for part in parts)]), mask))
    return found


def _chains(segments: Sequence[Segment]) -> list[list[int]]:
    """Return lists of indices of segments that follow each other without a gap."""
    chains: list[list[int]] = []
    open_at: dict[int, list[int]] = {}
    whole: list[int] = []
    for index, segment in enumerate(segments):
        whole.append(segment.offset + len(segment))
        goes_on = segment.parent >= 0 and segment.offset == whole[segment.parent]
        chain = open_at.pop(segment.parent, None) if goes_on else None
        if chain is None:
            chains.append(chain := list[int]())
        chain.append(index)
        open_at[index] = chain
    return chains


def _prefix(segments: Sequence[Segment], segment: Segment) -> Int32Array:
    """Return the tokens before a segment: the first ``offset`` of its parent's whole sequence."""
    parts, wanted = [np.zeros(0, np.int32)], segment.offset
    while segment.parent >= 0:
        segment = segments[segment.parent]
        parts.insert(1, segment.token_ids[: max(0, wanted - segment.offset)])
        wanted = min(wanted, segment.offset)
    return np.concatenate(parts)
