"""What every arm trains on: one model, and one batch of trajectories with few long ones among many short ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from learner.packing import Sample
from protocol.codec import dumps
from protocol.trajectory import GroupId, Reward, Segment, Status, Ticket, Trajectory
from protocol.weights import NO_VERSION, Lineage, Version

TAIL = 16.0
"""The 95th percentile of the lengths ÷ their median."""
_GROUP = 8
_TURN = 16
"""Tokens of a reply, or of an observation: half of all tokens are sampled."""
_SHORTEST = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """A Qwen3 model's."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    head_dim: int


TEN_MILLION = Shape(8192, 384, 1152, 4, 6, 2, 64)
WIDE_VOCABULARY = Shape(151_936, 128, 384, 2, 2, 2, 64)
"""A small body under the vocabulary of Qwen3: what the output layer holds is nearly all of the peak."""


@dataclass(frozen=True, slots=True)
class Work:
    shape: Shape
    lengths: tuple[int, ...]
    """Tokens of each trajectory, in order of arrival."""
    seed: int = 0

    @property
    def tokens(self) -> int:
        return sum(self.lengths)


def log_normal_lengths(count: int, median: int, seed: int = 0) -> tuple[int, ...]:
    """``count`` evenly spaced quantiles of the log-normal distribution with this median and :data:`TAIL`, in a random
    order, none under 8 tokens."""
    spread = math.log(TAIL) / NormalDist().inv_cdf(0.95)
    quantiles = [NormalDist().inv_cdf((index + 0.5) / count) for index in range(count)]
    lengths = [max(_SHORTEST, round(median * math.exp(spread * at))) for at in quantiles]
    return tuple(int(length) for length in np.random.default_rng(seed).permutation(lengths))


def trajectories(work: Work) -> list[Trajectory]:
    """In groups of 8, every second one rewarded; sampled by the model's own weights, nearly uniform as they begin."""
    rng = np.random.default_rng(work.seed)
    return [
        Trajectory(
            Ticket("bench", GroupId(number // _GROUP), number % _GROUP, _GROUP, "bench/task", 0),
            Status.COMPLETED,
            Reward(float(number % 2)),
            (_segment(length, work.shape.vocabulary, rng),),
        )
        for number, length in enumerate(work.lengths)
    ]


def _segment(length: int, vocabulary: int, rng: np.random.Generator) -> Segment:
    mask = (np.arange(length) // _TURN % 2).astype(np.uint8)
    if not mask.any():
        mask[-1] = 1
    return Segment(
        rng.integers(0, vocabulary, length, np.int32),
        mask,
        (-math.log(vocabulary) * mask).astype(np.float32),
        np.where(mask == 1, np.int32(0), np.int32(-1)),
    )


def payload(work: Work) -> list[bytes]:
    """As the buffer leases it to the learner."""
    return [dumps(trajectory) for trajectory in trajectories(work)]


def lineage() -> Lineage:
    made = Lineage()
    made.add(Version(0), 0, NO_VERSION)
    return made


def samples(work: Work) -> list[Sample]:
    """The same, as an arm takes it that is not ours; advantages are ±1."""
    return [
        Sample(
            segment.token_ids,
            np.flatnonzero(segment.loss_mask),
            segment.logprobs[segment.loss_mask == 1],
            2.0 * trajectory.reward.total - 1.0,
        )
        for trajectory in trajectories(work)
        for segment in trajectory.segments
    ]


def build_model(work: Work, folder: Path) -> int:
    """Write a Hugging Face folder with random weights; returns the number of parameters."""
    from launch.demo.hf import GenerationConfig, Qwen3Config, save_model

    shape = work.shape
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=max(work.lengths),
        tie_word_embeddings=True,
    )
    return save_model(folder, config, GenerationConfig(), work.seed)
