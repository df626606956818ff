"""From a leased batch of encoded trajectories to samples with advantages, and the account of every token.

Pure: numpy, and torch for the advantages.  Each rank reads the whole batch, so baselines and denominators are global
without a collective.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from learner.account import account
from learner.advantages import advantages
from learner.messages import TokenAccount
from learner.packing import Sample
from learner.settings import LearnerSettings
from learner.tensors import floats
from protocol.codec import loads
from protocol.staleness import StalePolicy, StaleVerdict, apply_policy
from protocol.trajectory import DropReason, Int32Array, Segment, Trajectory, Uint8Array
from protocol.weights import Lineage, Version


@dataclass(frozen=True, slots=True)
class TrainBatch:
    samples: list[Sample]
    trained: tuple[str, ...]
    """Ids, in payload order."""
    dropped: dict[str, DropReason]
    denominator: int
    """Tokens over which the loss is averaged: sampled ones, those masked as stale too."""
    ages: tuple[int, ...]
    """Tokens with loss by age; see :class:`learner.messages.StepReport`."""
    metrics: dict[str, float]
    account: TokenAccount


def read_batch(payload: Sequence[bytes], lineage: Lineage, using: Version, settings: LearnerSettings) -> TrainBatch:
    """Raises CodecError for bytes that are not a trajectory, KeyError for a version that ``lineage`` lacks."""
    trajectories = [loads(blob) for blob in payload]
    verdicts = [apply_policy(settings.stale_policy, t.segments, lineage, using, settings.eta) for t in trajectories]
    rewards = [t.reward.total for t in trajectories]
    if settings.shuffle_rewards:
        random.Random(f"{settings.seed}/{using}").shuffle(rewards)
    per_trajectory = advantages(
        torch.tensor(rewards, dtype=torch.float32),
        torch.tensor([t.ticket.group for t in trajectories], dtype=torch.int64),
        settings.advantage,
    )
    samples: list[Sample] = []
    trained: list[str] = []
    dropped: dict[str, DropReason] = {}
    ages: list[Int32Array] = []
    denominator = 0
    for trajectory, verdict, advantage in zip(trajectories, verdicts, floats(per_trajectory), strict=True):
        if verdict.drop is None or settings.stale_policy is not StalePolicy.DROP:
            denominator += verdict.sampled
        if verdict.drop is not None:
            dropped[trajectory.ticket.trajectory_id] = verdict.drop
            continue
        trained.append(trajectory.ticket.trajectory_id)
        samples.extend(_samples(trajectory, verdict, advantage))
        ages.extend(age[mask == 1] for age, mask in zip(verdict.ages, verdict.loss_masks, strict=True))
    age = np.concatenate(ages) if ages else np.zeros(0, np.int32)
    by_age = tuple(int(tokens) for tokens in np.bincount(age))
    metrics = _metrics(verdicts, age)
    where = account(trajectories, verdicts)
    return TrainBatch(samples, tuple(trained), dropped, denominator, by_age, metrics, where)


def _samples(trajectory: Trajectory, verdict: StaleVerdict, advantage: float) -> list[Sample]:
    """One per segment that has a token with loss."""
    found: list[Sample] = []
    for segment, mask in zip(trajectory.segments, verdict.loss_masks, strict=True):
        prefix = _prefix(trajectory.segments, segment)
        own = np.flatnonzero(mask)
        targets = own + len(prefix)
        if len(targets) and targets[0] == 0:  # nothing predicts the first token of all
            own, targets = own[1:], targets[1:]
        if len(targets):
            tokens = np.concatenate([prefix, segment.token_ids])
            found.append(Sample(tokens, targets.astype(np.int64), segment.logprobs[own], advantage))
    return found


def _prefix(segments: tuple[Segment, ...], segment: Segment) -> Int32Array:
    """The tokens before a segment: the first ``offset`` of its parent's whole sequence."""
    parts, wanted = [np.zeros(0, np.int32)], segment.offset
    while segment.parent >= 0:
        segment = segments[segment.parent]
        parts.insert(1, segment.token_ids[: max(0, wanted - segment.offset)])
        wanted = min(wanted, segment.offset)
    return np.concatenate(parts)


def _metrics(verdicts: Sequence[StaleVerdict], age: Int32Array) -> dict[str, float]:
    sampled, trained = sum(v.sampled for v in verdicts), sum(v.trained for v in verdicts)
    masked = sum(v.sampled - v.trained for v in verdicts if v.drop is None)
    return {
        "sampled_tokens": float(sampled),
        "trained_tokens": float(trained),
        "masked_tokens": float(masked),
        "trained_share": trained / max(sampled, 1),
        "age_mean": float(age.mean()) if age.size else 0.0,
        "age_max": float(age.max(initial=0)),
        "trajectories": float(len(verdicts)),
    }


def supervised(sequences: Sequence[tuple[Int32Array, Uint8Array]]) -> list[Sample]:
    """Samples for fine-tuning from (token ids, loss mask); a sequence without loss is left out."""
    found: list[Sample] = []
    for token_ids, loss_mask in sequences:
        targets = np.flatnonzero(loss_mask)
        targets = targets[targets > 0]
        if len(targets):
            found.append(Sample(token_ids, targets, np.zeros(len(targets), np.float32)))
    return found
