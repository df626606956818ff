"""``longshore bench learner``: measure longshore's optimizer step.

On the CPU (:mod:`~launch.bench.learner.cpu_comparison`) it is compared with plain Hugging Face and AdamW, with
``--device cuda`` (:mod:`~launch.bench.learner.gpu_throughput`) with the peak of the device.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field

from launch.bench.learner import cpu_comparison, gpu_throughput
from protocol.cli.arguments import AtLeastOne, CommandArguments, JsonFlag, option
from protocol.cli.output import error_console
from protocol.errors import UserError

LearnerBenchmarkReport = cpu_comparison.CpuComparisonReport | gpu_throughput.GpuThroughputReport

_GROUPS_OF = 8
_SHORTEST_MEDIAN = 8


@dataclass(frozen=True, slots=True)
class LearnerBenchmarkOptions:
    device: str
    sequences: int
    median: int
    """Median length in tokens."""
    rounds: int
    threads: int


class LearnerArguments(CommandArguments):
    """Measure an optimizer step, compared with plain Hugging Face."""

    device: Annotated[Literal["cpu", "cuda"], option()] = "cpu"
    """Device; cuda measures bfloat16 with the shapes of Qwen3-0.6B and 1.7B."""
    sequences: AtLeastOne = 64
    """Trajectories in the batch."""
    median_tokens: Annotated[int, option("TOKENS")] = 32
    """Median length of the trajectories, in tokens (cpu only)."""
    rounds: AtLeastOne = 3
    """Number of rounds; the median is reported."""
    threads: Annotated[int, option("N", show_default=False), Field(ge=1)] = os.cpu_count() or 1
    """Threads of each arm (cpu only); default: all cores."""
    as_json: JsonFlag = False


def parse_options(given: LearnerArguments) -> LearnerBenchmarkOptions:
    """Check the arguments.  Raises UserError."""
    if given.sequences < _GROUPS_OF or given.sequences % _GROUPS_OF or given.median_tokens < _SHORTEST_MEDIAN:
        raise UserError(
            f"--sequences is a multiple of {_GROUPS_OF} (a group), --median-tokens {_SHORTEST_MEDIAN} or more"
        )
    if given.device == "cuda" and not torch.cuda.is_available():
        raise UserError("torch sees no CUDA device here: run it where there is one, or without --device cuda")
    return LearnerBenchmarkOptions(given.device, given.sequences, given.median_tokens, given.rounds, given.threads)


async def measure_learner(options: LearnerBenchmarkOptions) -> LearnerBenchmarkReport:
    """Run the benchmark.  Raises InfraError if a process dies."""
    return await asyncio.to_thread(_measure, options)


def _measure(options: LearnerBenchmarkOptions) -> LearnerBenchmarkReport:
    say = error_console().print
    with tempfile.TemporaryDirectory(prefix="ls-bench-") as folder:
        if options.device == "cuda":
            return gpu_throughput.measure_gpu_throughput(
                Path(folder), gpu_throughput.QWEN3, "cuda", sequences=options.sequences, rounds=options.rounds, say=say
            )
        return cpu_comparison.compare_on_cpu(
            Path(folder),
            sequences=options.sequences,
            middle=options.median,
            rounds=options.rounds,
            threads=options.threads,
            say=say,
        )
