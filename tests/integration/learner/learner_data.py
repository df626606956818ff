"""Small models, batches and trajectories for the learner's tests."""

from dataclasses import replace

import numpy as np

from learner.messages import SftBatch
from protocol.codec import pack_trajectory
from protocol.trajectory import EpisodeStatus, GroupId, Reward, RolloutRequest, Segment, Trajectory
from protocol.weights import NO_VERSION, Lineage, WeightVersion

VOCABULARY = 97  # odd on purpose: tensor parallelism has to pad it
SHAPES = {
    "tied": {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "tie_word_embeddings": True,
    },
    "untied": {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "tie_word_embeddings": False,
    },
    "qwen2": {
        "model_type": "qwen2",
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
}


def sft_batches(count: int = 3, sequences: int = 7, lr: float = 3e-3) -> list[SftBatch]:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(count):
        batch = []
        for _ in range(sequences):
            length = int(rng.integers(6, 40))
            mask = (np.arange(length) > length // 3).astype(np.uint8)
            batch.append((rng.integers(0, VOCABULARY, length).astype(np.int32), mask))
        found.append(SftBatch(batch, lr))
    return found


def lineage(steps: int = 8) -> Lineage:
    """Version n is the weights after n steps."""
    made = Lineage()
    for step in range(steps):
        made.add(WeightVersion(step), step, WeightVersion(step - 1) if step else NO_VERSION)
    return made


def trajectory(rng, group: int, sample: int, reward: float, versions, length: int | None = None):
    """``versions``: the version of each third of the sampled tokens, one after the other."""
    length = length or int(rng.integers(12, 40))
    mask = (np.arange(length) >= length // 3).astype(np.uint8)
    tokens = rng.integers(0, VOCABULARY, length).astype(np.int32)
    spread = np.array(versions)[
        np.minimum((np.arange(length) - length // 3) * len(versions) // (length - length // 3), len(versions) - 1)
    ]
    behaviour = -4.6 + 0.3 * rng.normal(size=length)
    return Trajectory(
        RolloutRequest("run", GroupId(group), sample, 8, "task", 0),
        EpisodeStatus.COMPLETED,
        Reward(reward),
        (
            Segment(
                tokens,
                mask,
                np.where(mask, behaviour, 0).astype(np.float32),
                np.where(mask, spread, -1).astype(np.int32),
            ),
        ),
    )


def with_logprobs(bare: Trajectory, logprobs) -> Trajectory:
    """``bare`` with these behaviour log-probabilities where it was sampled."""
    segment = bare.segments[0]
    recorded = np.where(segment.loss_mask, logprobs, 0).astype(np.float32)
    return replace(bare, segments=(replace(segment, logprobs=recorded),))


def payload(groups: int = 3, size: int = 4, versions=(2, 3), seed: int = 0) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [
        pack_trajectory(trajectory(rng, group, sample, float(sample % 2), versions))
        for group in range(groups)
        for sample in range(size)
    ]
