"""Makes samples with advantages from a leased batch of encoded trajectories, and accounts for every token.

Pure: numpy, and torch for the advantages.  Each rank reads the whole batch, so baselines and loss weights are global
without a collective.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from learner.data.micro_batches import BadSampleError, TrainingSample
from learner.data.sequences import iterate_model_turns, make_samples, token_turn_indices
from learner.data.token_account import account_tokens
from learner.losses.advantages import compute_advantages
from learner.losses.aggregation import token_loss_weights
from learner.losses.reward_shaping import shape_reward
from learner.losses.settings import AdvantageEstimator, RewardShapingSettings
from learner.losses.token_columns import TokenArray, make_token_columns
from learner.messages import TokenAccount
from learner.spec import LearnerSpec
from learner.tensors import floats
from protocol.codec import unpack_trajectory
from protocol.staleness import StalenessVerdict, StaleTokenPolicy, apply_stale_token_policy
from protocol.trajectory import DropReason, Int32Array, ReplyRole, Trajectory, Uint8Array
from protocol.weights import Lineage, WeightVersion


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """A batch that was read: samples to train, dropped trajectories and metrics."""

    samples: list[TrainingSample]
    trained: tuple[str, ...]
    """Ids of trained trajectories, in payload order."""
    dropped: dict[str, DropReason]
    trajectory_ids: tuple[str, ...]
    """Ids of all trajectories; a sample's ``trajectory_index`` is an index here."""
    staleness_histogram: tuple[int, ...]
    """Number of tokens with loss by staleness; see :class:`learner.messages.StepReport`."""
    metrics: dict[str, float]
    account: TokenAccount
    lengths: tuple[int, ...]
    """Number of tokens of each of ``trajectory_ids`` in all of its segments."""


def read_batch(payload: Sequence[bytes], lineage: Lineage, using: WeightVersion, spec: LearnerSpec) -> TrainBatch:
    """Read a payload and compute advantages, loss weights and metrics.

    ``using`` is the version of the weights about to be updated; :mod:`learner.data.usable` has sorted out trajectories
    of other versions.  Raises CodecError for bytes that are not a trajectory.
    """
    trajectories = [unpack_trajectory(blob) for blob in payload]
    verdicts = [
        apply_stale_token_policy(spec.staleness.policy, t.segments, lineage, using, spec.staleness.max_staleness)
        for t in trajectories
    ]
    rewards, own = [t.reward.total for t in trajectories], _turn_rewards(trajectories)
    if spec.shuffle_rewards:
        dice = random.Random(f"{spec.seed}/{using}")
        dice.shuffle(rewards)
        own = _shuffled(own, dice)
    by_token = _advantages(trajectories, rewards, own, spec)
    shares = _token_weights(verdicts, spec)
    found: list[TrainingSample] = []
    trained: list[str] = []
    dropped: dict[str, DropReason] = {}
    for origin, (trajectory, verdict) in enumerate(zip(trajectories, verdicts, strict=True)):
        if verdict.drop is not None:
            dropped[trajectory.request.trajectory_id] = verdict.drop
            continue
        trained.append(trajectory.request.trajectory_id)
        found += make_samples(
            trajectory.segments,
            verdict.loss_masks,
            verdict.staleness,
            by_token[origin],
            weight=shares[origin],
            origin=origin,
        )
    kept = [
        staleness[mask == 1]
        for verdict in verdicts
        if verdict.drop is None
        for staleness, mask in zip(verdict.staleness, verdict.loss_masks, strict=True)
    ]
    staleness = np.concatenate(kept) if kept else np.zeros(0, np.int32)
    histogram = tuple(int(tokens) for tokens in np.bincount(staleness))
    names = tuple(trajectory.request.trajectory_id for trajectory in trajectories)
    metrics = staleness_metrics(verdicts, staleness) | turn_metrics(trajectories) | reward_part_metrics(trajectories)
    return TrainBatch(
        found,
        tuple(trained),
        dropped,
        names,
        histogram,
        metrics,
        account_tokens(trajectories, verdicts),
        tuple(trajectory.tokens for trajectory in trajectories),
    )


def _token_weights(verdicts: Sequence[StalenessVerdict], spec: LearnerSpec) -> list[float]:
    """Return the loss weight of a token, by trajectory.  With the policy ``drop``, dropped trajectories have no weight;
    otherwise tokens without loss keep their weight."""
    forgets, settings = spec.staleness.policy is StaleTokenPolicy.DROP, spec.objective.policy_loss
    counts = [not forgets or verdict.drop is None for verdict in verdicts]
    shares = iter(
        token_loss_weights(
            [verdict.sampled for verdict, here in zip(verdicts, counts, strict=True) if here],
            settings.aggregation,
            settings.aggregation_tokens,
        )
    )
    return [next(shares) if here else 0.0 for here in counts]


def _turn_rewards(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """Return the own rewards of each trajectory's model turns."""
    return [[turn.reward for _, _, turn in iterate_model_turns(trajectory.segments)] for trajectory in trajectories]


def _shuffled(own: Sequence[Sequence[float]], dice: random.Random) -> list[list[float]]:
    """Return all rewards shuffled over the turns of the batch."""
    every = [reward for turns in own for reward in turns]
    dice.shuffle(every)
    left = iter(every)
    return [[next(left) for _ in turns] for turns in own]


def _advantages(
    trajectories: Sequence[Trajectory],
    rewards: Sequence[float],
    own: Sequence[Sequence[float]],
    spec: LearnerSpec,
) -> list[list[TokenArray]]:
    """Return the advantage of each token: float32 [T] per trajectory and segment.  ``rewards`` are the trajectories',
    ``own`` those of their turns."""
    estimator, shaping = spec.objective.policy_loss.advantage, spec.objective.shaping
    groups = [trajectory.request.group for trajectory in trajectories]
    if estimator is AdvantageEstimator.TURN:
        sums = [[total + reward for reward in turns] or [total] for total, turns in zip(rewards, own, strict=True)]
        return _step_advantages(trajectories, sums, groups, shaping)
    totals = [
        shape_reward(reward, trajectory.sampled_tokens, shaping)
        for trajectory, reward in zip(trajectories, rewards, strict=True)
    ]
    pools = [0] * len(groups) if estimator is AdvantageEstimator.BATCH else groups
    made = compute_advantages(
        torch.tensor(totals, dtype=torch.float64), torch.tensor(pools, dtype=torch.int64), estimator
    )
    return [
        [np.full(len(segment), advantage, np.float32) for segment in trajectory.segments]
        for trajectory, advantage in zip(trajectories, floats(made), strict=True)
    ]


def _step_advantages(
    trajectories: Sequence[Trajectory],
    sums: Sequence[Sequence[float]],
    groups: Sequence[int],
    shaping: RewardShapingSettings,
) -> list[list[TokenArray]]:
    """Return advantages of turns: the sum of the turn's and the trajectory's reward is shaped, and compared with the
    group's turns of the same index."""
    rewards = [
        [shape_reward(reward, trajectory.sampled_tokens, shaping) for reward in turns]
        for trajectory, turns in zip(trajectories, sums, strict=True)
    ]
    pools = [(group, turn) for group, turns in zip(groups, rewards, strict=True) for turn in range(len(turns))]
    labels = {pool: label for label, pool in enumerate(dict.fromkeys(pools))}
    made = compute_advantages(
        torch.tensor([reward for turns in rewards for reward in turns], dtype=torch.float64),
        torch.tensor([labels[pool] for pool in pools], dtype=torch.int64),
        AdvantageEstimator.TURN,
    )
    per_trajectory = np.split(np.array(floats(made), np.float32), np.cumsum([len(turns) for turns in rewards])[:-1])
    return [
        [turns[indices] for indices in token_turn_indices(trajectory.segments)]
        for trajectory, turns in zip(trajectories, per_trajectory, strict=True)
    ]


def staleness_metrics(verdicts: Sequence[StalenessVerdict], staleness: Int32Array) -> dict[str, float]:
    """Return metrics of sampled and trained tokens; ``staleness`` [trained tokens] is in optimizer steps."""
    sampled, trained = sum(v.sampled for v in verdicts), sum(v.trained for v in verdicts)
    masked = sum(v.sampled - v.trained for v in verdicts if v.drop is None)
    return {
        "sampled_tokens": float(sampled),
        "trained_tokens": float(trained),
        "masked_tokens": float(masked),
        "trained_share": trained / max(sampled, 1),
        "staleness_mean": float(staleness.mean()) if staleness.size else 0.0,
        "staleness_max": float(staleness.max(initial=0)),
        "trajectories": float(len(verdicts)),
    }


def turn_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return counts of turns, of those not sampled by one version on its own prefix throughout, and of those that are
    not the agent's work."""
    turns = [turn for trajectory in trajectories for _, _, turn in iterate_model_turns(trajectory.segments)]
    segments = [segment for trajectory in trajectories for segment in trajectory.segments]
    roles = Counter(turn.role for segment in segments for turn in segment.turns)
    return {
        "turns": float(len(turns)),
        "mixed_prefix_turns": float(sum(turn.mixed_prefix for turn in turns)),
        "server_switched_turns": float(sum(turn.server_switches > 0 for turn in turns)),
        "auxiliary_turns": float(roles[ReplyRole.AUXILIARY]),
        "discarded_turns": float(roles[ReplyRole.DISCARDED]),
    }


def reward_part_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return the mean of each part of the rewards, over the trajectories that have it."""
    found: dict[str, list[float]] = {}
    for trajectory in trajectories:
        for name, value in trajectory.reward.parts.items():
            found.setdefault(f"part_{name}", []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def make_supervised_samples(
    sequences: Sequence[tuple[Int32Array, Uint8Array]], weights: Sequence[float] = ()
) -> list[TrainingSample]:
    """Make samples for fine-tuning from (token ids, loss mask) and weights, by default 1.

    The loss weight of a token is its sequence's weight ÷ the sum of the weights over all tokens with loss.  A sequence
    without loss or with weight 0 is left out.  Raises BadSampleError for a negative weight or an invalid mask.
    """
    for index, (token_ids, loss_mask) in enumerate(sequences):
        if np.shape(loss_mask) != np.shape(token_ids) or not np.isin(loss_mask, (0, 1)).all():
            shapes = f"token ids {list(np.shape(token_ids))} and a loss mask {list(np.shape(loss_mask))}"
            raise BadSampleError(f"sequence {index} has {shapes}: a mask has a 0 or a 1 for each token")
    own_weights = weights or [1.0] * len(sequences)
    if any(not 0 <= weight < math.inf for weight in own_weights):
        raise BadSampleError(f"a sequence has the weight {min(own_weights)}: weights are finite and at least 0")
    targets = [np.flatnonzero(loss_mask) for _, loss_mask in sequences]
    targets = [own[own > 0] for own in targets]
    total = sum(weight * len(own) for weight, own in zip(own_weights, targets, strict=True))
    return [
        TrainingSample(token_ids, own, make_token_columns(np.zeros(len(own)), np.zeros(len(own)), weight / total))
        for (token_ids, _), own, weight in zip(sequences, targets, own_weights, strict=True)
        if weight * len(own) > 0
    ]
