"""Builds what every stage uses: a model with random weights, batches of trajectories, and a learner rank.

The project's names are imported here and in the stages of :mod:`tools.gpu_check.numerics`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protocol import dependencies


def _has_what_it_needs(*names: str) -> None:
    """Skip the check of packages: a bare GPU machine lacks Ray and Docker's client, which the learner does not need."""
    del names


dependencies.require_packages = _has_what_it_needs

from launch.bench.learner.workload import (  # noqa: E402  after the line above
    LearnerWorkload,
    Qwen3Shape,
    build_workload_model,
    encode_batch,
    initial_lineage,
    split_into_lengths,
)
from learner.rank import LearnerRank  # noqa: E402  as above
from learner.settings import Dtype, LoraSettings, TrainerSettings  # noqa: E402  as above
from learner.spec import LearnerSpec  # noqa: E402  as above
from protocol.trajectory import Int32Array, Uint8Array  # noqa: E402  as above
from protocol.weights import WeightVersion  # noqa: E402  as above

PARITY = "parity"
_SHAPES = {
    PARITY: Qwen3Shape(151_936, 512, 1536, 4, 8, 4, 128),
    "0.6B": Qwen3Shape(151_936, 1024, 3072, 28, 16, 8, 128),
    "1.7B": Qwen3Shape(151_936, 2048, 6144, 28, 16, 8, 128),
    "8B_slice": Qwen3Shape(151_936, 4096, 12_288, 8, 32, 8, 128),
}
_SMALL = Qwen3Shape(2048, 64, 128, 2, 4, 2, 16)
_LENGTHS = (5, 130, 257, 384, 513, 700)
_SMALL_LENGTHS = (5, 33, 64, 90)
_CONTEXT, _SMALL_CONTEXT = 65_536, 1024
CUDA = torch.cuda.is_available()


@dataclass(frozen=True, slots=True)
class Workbench:
    """Where a stage runs: ``folder`` is shared by the stages of one check, ``small`` selects the tiny shapes."""

    folder: Path
    small: bool

    def shape(self, name: str) -> Qwen3Shape:
        return _SMALL if self.small else _SHAPES[name]

    def tokens(self, tokens: int) -> int:
        """Return the tokens of a batch: ``tokens``, at most 256 with the tiny shapes."""
        return min(tokens, 256) if self.small else tokens

    def batches(self, name: str, tokens: int) -> dict[str, LearnerWorkload]:
        """Return two batches of ``tokens`` tokens: 16 sequences, and one."""
        shape, tokens = self.shape(name), self.tokens(tokens)
        return {
            "many": LearnerWorkload(shape, split_into_lengths(tokens, 16), True),
            "one": LearnerWorkload(shape, (tokens,), True),
        }

    def training_batch(self) -> LearnerWorkload:
        """Return a batch of eight short trajectories for the parity model."""
        lengths = (40, 30, 20, 16, 12, 10, 9, 8) if self.small else (300, 200, 150, 100, 80, 60, 40, 30)
        return LearnerWorkload(self.shape(PARITY), lengths, True)

    def sequences(self) -> list[tuple[Int32Array, Uint8Array]]:
        """Return token ids and loss masks, the same on every machine; all tokens but the first have loss."""
        rng, vocabulary = np.random.default_rng(7), self.shape(PARITY).vocabulary
        found: list[tuple[Int32Array, Uint8Array]] = []
        for length in _SMALL_LENGTHS if self.small else _LENGTHS:
            mask = np.ones(length, np.uint8)
            mask[0] = 0
            found.append((rng.integers(0, vocabulary, length, np.int32), mask))
        return found

    def model(self, name: str) -> str:
        """Return the Hugging Face folder of a model with random weights, built once for all stages."""
        folder = self.folder / f"model-{name}"
        if not (folder / "config.json").exists():
            context = _SMALL_CONTEXT if self.small else _CONTEXT
            build_workload_model(LearnerWorkload(self.shape(name), (1024,), True), folder, context)
        return str(folder)

    def learner(
        self,
        name: str,
        *,
        micro_batch_tokens: int = 4096,
        lr: float = 1e-4,
        lora: LoraSettings | None = None,
        device: str = "cuda" if CUDA else "cpu",
        **settings: Any,
    ) -> LearnerRank:
        """Set up a learner rank; ``settings`` are fields of TrainerSettings."""
        trainer = TrainerSettings(device=device, lr=lr, micro_batch_tokens=micro_batch_tokens, **settings)
        made = LearnerRank(LearnerSpec(self.model(name), trainer, lora or LoraSettings()))
        made.setup()
        return made


def training_dtype() -> Dtype:
    """Return bfloat16 on a GPU, float32 on a CPU."""
    return Dtype.BFLOAT16 if CUDA else Dtype.FLOAT32


def train_step(learner: LearnerRank, step: int, batch: LearnerWorkload) -> dict[str, float]:
    """Take one optimizer step on ``batch`` and return its metrics."""
    return dict(learner.step(step, encode_batch(batch), initial_lineage(), WeightVersion(0)).metrics)
