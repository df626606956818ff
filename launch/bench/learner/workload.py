"""The workload of every arm: one model, and one batch of many short and few long trajectories."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from learner.data.batch import read_batch
from learner.data.micro_batches import TrainingSample
from learner.spec import LearnerSpec
from protocol.codec import pack_trajectory
from protocol.trajectory import EpisodeStatus, GroupId, Reward, RolloutRequest, Segment, Trajectory
from protocol.weights import NO_VERSION, Lineage, WeightVersion

TAIL = 16.0
"""The 95th percentile of the lengths ÷ their median."""
_GROUP = 8
_TURN = 16
"""Number of tokens of a reply or an observation; half of all tokens are sampled."""
_SHORTEST = 8


@dataclass(frozen=True, slots=True)
class Qwen3Shape:
    """The shape of a Qwen3 model."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    head_dim: int


TEN_MILLION = Qwen3Shape(8192, 384, 1152, 4, 6, 2, 64)
WIDE_VOCABULARY = Qwen3Shape(151_936, 128, 384, 2, 2, 2, 64)
"""Vocabulary of Qwen3 under a small body, so that the output layer dominates the peak memory."""


@dataclass(frozen=True, slots=True)
class LearnerWorkload:
    shape: Qwen3Shape
    lengths: tuple[int, ...]
    """Length of each trajectory in tokens, in order of arrival."""
    all_sampled: bool = False
    """Whether every token but the first has loss; otherwise every second turn has."""
    seed: int = 0

    @property
    def tokens(self) -> int:
        return sum(self.lengths)


def log_normal_lengths(count: int, median: int, seed: int = 0) -> tuple[int, ...]:
    """Return ``count`` evenly spaced quantiles of the log-normal distribution with this median and :data:`TAIL`, in
    random order, each at least 8 tokens.
    """
    lengths = [max(_SHORTEST, round(median * quantile)) for quantile in _quantiles(count)]
    return tuple(int(length) for length in np.random.default_rng(seed).permutation(lengths))


def split_into_lengths(tokens: int, count: int) -> tuple[int, ...]:
    """Return ``count`` such quantiles that sum to ``tokens``."""
    quantiles = _quantiles(count)
    lengths = [max(_SHORTEST, math.floor(tokens * quantile / sum(quantiles))) for quantile in quantiles]
    return (*lengths[:-1], tokens - sum(lengths[:-1]))


def _quantiles(count: int) -> list[float]:
    """Return ascending quantiles of the distribution with median 1."""
    spread = math.log(TAIL) / NormalDist().inv_cdf(0.95)
    return [math.exp(spread * NormalDist().inv_cdf((index + 0.5) / count)) for index in range(count)]


def build_trajectories(work: LearnerWorkload) -> list[Trajectory]:
    """Return trajectories in groups of 8, every second one rewarded, with nearly uniform log-probabilities."""
    rng = np.random.default_rng(work.seed)
    return [
        Trajectory(
            RolloutRequest("bench", GroupId(number // _GROUP), number % _GROUP, _GROUP, "bench/task", 0),
            EpisodeStatus.COMPLETED,
            Reward(float(number % 2)),
            (_segment(length, work, rng),),
        )
        for number, length in enumerate(work.lengths)
    ]


def _segment(length: int, work: LearnerWorkload, rng: np.random.Generator) -> Segment:
    at, vocabulary = np.arange(length), work.shape.vocabulary
    mask = (at > 0 if work.all_sampled else at // _TURN % 2 == 1).astype(np.uint8)
    mask[-1] = 1
    return Segment(
        rng.integers(0, vocabulary, length, np.int32),
        mask,
        (-math.log(vocabulary) * mask).astype(np.float32),
        np.where(mask == 1, np.int32(0), np.int32(-1)),
    )


def encode_batch(work: LearnerWorkload) -> list[bytes]:
    """Return the batch as the buffer leases it to the learner."""
    return [pack_trajectory(trajectory) for trajectory in build_trajectories(work)]


def initial_lineage() -> Lineage:
    made = Lineage()
    made.add(WeightVersion(0), 0, NO_VERSION)
    return made


def build_samples(work: LearnerWorkload) -> list[TrainingSample]:
    """Return the samples as the loss reads them, with advantages and loss weights."""
    return read_batch(encode_batch(work), initial_lineage(), WeightVersion(0), LearnerSpec("")).samples


def build_workload_model(work: LearnerWorkload, folder: Path, context_tokens: int = 0) -> int:
    """Write a Hugging Face folder with random weights for at least this context and that of the workload, and return
    the number of parameters.
    """
    from launch.data.demo.hugging_face import GenerationConfig, Qwen3Config, save_model

    shape = work.shape
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=max(context_tokens, *work.lengths),
        tie_word_embeddings=True,
    )
    return save_model(folder, config, GenerationConfig(), work.seed)
