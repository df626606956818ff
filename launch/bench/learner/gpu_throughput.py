"""Measures longshore's step in bfloat16 on a CUDA device by shape, lengths and recomputation: tokens per second, MFU,
memory.

Each batch is one micro-batch of 16,384 or 65,536 tokens, all with loss but the first of each trajectory: groups of
trajectories with log-normal lengths, or one trajectory.  MFU counts 6 · N_matmul · T + 6 · L · h_attn · Σ len² with
the output layer and without recomputation (:mod:`learner.models.flops`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

from launch.bench.isolated_process import isolate
from launch.bench.learner.longshore_step import LongshoreStep
from launch.bench.learner.workload import LearnerWorkload, Qwen3Shape, build_workload_model, split_into_lengths
from launch.bench.process_memory import peak_bytes, reset_peak
from learner.models.logprobs import token_logprobs
from learner.models.policy_model import torch_dtype
from learner.settings import Dtype, Recompute, TrainerSettings
from learner.spec import LearnerSpec
from protocol.events import JsonValue

QWEN3 = {
    "Qwen3-0.6B": Qwen3Shape(151_936, 1024, 3072, 28, 16, 8, 128),
    "Qwen3-1.7B": Qwen3Shape(151_936, 2048, 6144, 28, 16, 8, 128),
}
TOKENS = (16_384, 65_536)


@dataclass(frozen=True, slots=True)
class GpuThroughputRow:
    model: str
    tokens: int
    sequences: int
    recompute: Recompute
    tokens_per_s: float
    """Tokens per second; 0, like all that follows, if the memory did not suffice."""
    mfu: float
    """Share of the device's dense peak; 0 if the peak is unknown."""
    peak_bytes: int
    logprob_bytes: int
    """Peak memory of all log-probabilities, forward and backward, above weights and hidden states."""


@dataclass(frozen=True, slots=True)
class GpuThroughputReport:
    device: str
    device_bytes: int
    rows: tuple[GpuThroughputRow, ...]

    @property
    def passed(self) -> bool:
        """Always true: results depend on the device."""
        return True

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "device": self.device,
            "device_bytes": self.device_bytes,
            "rows": [dict(asdict(row)) | {"recompute": row.recompute.value} for row in self.rows],
        }


def measure_gpu_throughput(
    folder: Path,
    shapes: Mapping[str, Qwen3Shape],
    device: str,
    *,
    sequences: int,
    rounds: int,
    say: Callable[[str], None],
    tokens: tuple[int, ...] = TOKENS,
) -> GpuThroughputReport:
    """Measure every shape, length, number of sequences (``sequences`` or 1) and kind of recomputation; ``folder`` is
    empty."""
    rows: list[GpuThroughputRow] = []
    for name, shape in shapes.items():
        works = [
            LearnerWorkload(shape, lengths, True)
            for each in tokens
            for lengths in (split_into_lengths(each, sequences), (each,))
        ]
        build_workload_model(works[-1], folder / name)
        for recompute in Recompute:
            settings = TrainerSettings(
                device=device,
                dtype=Dtype.BFLOAT16,
                lr=1e-6,
                micro_batch_tokens=max(tokens),
                recompute=recompute,
            )
            with isolate(partial(GpuStep, LearnerSpec(str(folder / name), settings))) as made:
                for work in works:
                    rows.append(made.call(GpuStep.measure_row, name, work, rounds))
                    say(_line(rows[-1]))
    cuda = device == "cuda"
    return GpuThroughputReport(
        torch.cuda.get_device_name() if cuda else "cpu",
        torch.cuda.mem_get_info()[1] if cuda else 0,
        tuple(rows),
    )


def _line(row: GpuThroughputRow) -> str:
    return (
        f"{row.model}  {row.tokens:>6} tokens in {row.sequences:>3}  recompute {row.recompute:<9} "
        f"{row.tokens_per_s:>9,.0f} tokens/s  MFU {row.mfu:>6.1%}  {row.peak_bytes / 2**30:>5.1f} GiB"
    )


class GpuStep(LongshoreStep):
    """A learner that reports its use of the device."""

    def measure_row(self, model: str, work: LearnerWorkload, rounds: int) -> GpuThroughputRow:
        """Return the median of ``rounds`` steps after one warm-up step."""
        row = partial(GpuThroughputRow, model, work.tokens, len(work.lengths), self.spec.trainer.recompute)
        try:
            _reset_peak()
            self.take_reported_step(work)
            steps = [self.take_reported_step(work).metrics for _ in range(rounds)]
            return row(
                median(step["tokens_per_s"] for step in steps),
                median(step.get("mfu", 0.0) for step in steps),
                _peak(),
                self._logprob_bytes(work),
            )
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return row(0.0, 0.0, 0, 0)

    def _logprob_bytes(self, work: LearnerWorkload) -> int:
        settings = self.spec.trainer
        make = partial(torch.randn, dtype=torch_dtype(settings.dtype), device=settings.device, requires_grad=True)
        hidden, weight = make(work.tokens, work.shape.hidden), make(work.shape.vocabulary, work.shape.hidden)
        labels = torch.zeros(work.tokens, dtype=torch.int64, device=settings.device)
        buffer = torch.zeros_like(weight, dtype=torch.float32)
        _reset_peak()
        before = _peak()
        found = token_logprobs(
            hidden,
            weight,
            labels,
            chunk_bytes=self.spec.logprob_chunk_bytes,
            entropy=True,
            weight_grad_VH=buffer,
        )
        torch.autograd.grad(found.logprobs.sum(), hidden)
        return _peak() - before


def _reset_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        reset_peak()


def _peak() -> int:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else peak_bytes()
