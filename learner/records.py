"""What a step made of each token, as the run keeps it for people.  Numpy only.

A trajectory's samples (a linear episode has one, branches have more) are put back where their tokens stand in its
segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from learner.packing import Sample
from protocol.trained import TokenFacts, TokenRecord, pack_facts

if TYPE_CHECKING:  # it loads megatron
    from learner.step import Seen


def token_records(
    names: Sequence[str], lengths: Sequence[int], seen: Sequence[tuple[Sample, Seen]]
) -> Mapping[str, TokenRecord]:
    """Of each trajectory (its name and number of tokens, by origin) that has a token in ``seen``."""
    parts: dict[int, list[tuple[Sample, Seen]]] = {}
    for sample, found in seen:
        if len(sample.targets):  # a placeholder has none
            parts.setdefault(sample.origin, []).append((sample, found))
    return {names[origin]: _record(lengths[origin], own) for origin, own in parts.items()}


def _record(length: int, parts: Sequence[tuple[Sample, Seen]]) -> TokenRecord:
    logprobs, advantages = (np.full(length, np.nan, np.float32) for _ in range(2))
    marks = np.zeros(length, np.uint8)
    for sample, found in parts:
        assert sample.places is not None  # noqa: S101  # those that are made of trajectories have them
        logprobs[sample.places] = found.logprobs
        advantages[sample.places] = sample.columns.advantages
        marks[sample.places] = found.marks
    gaps = np.concatenate([np.abs(found.logprobs - sample.columns.behaviour) for sample, found in parts])
    return TokenRecord(
        pack_facts(TokenFacts(logprobs, advantages, marks)), float(np.nanmean(advantages)), float(gaps.mean())
    )
