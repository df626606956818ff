"""``python -m launch.bench learner``: an optimizer step of ours.

On the CPU (:mod:`~launch.bench.learner.cpu_comparison`) it stands beside plain Hugging Face and AdamW; with ``--device cuda``
(:mod:`~launch.bench.learner.gpu_throughput`) beside what the device could do at most.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from launch.bench.learner import cpu_comparison, gpu_throughput
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
    """Tokens."""
    rounds: int
    threads: int


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="cuda: bfloat16, Qwen3-0.6B's and 1.7B's shapes"
    )
    parser.add_argument("--sequences", type=int, default=64, metavar="N", help="trajectories in the batch (default 64)")
    parser.add_argument(
        "--median", type=int, default=32, metavar="TOKENS", help="their median length (default 32; cpu)"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the median of which counts (default 3)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, metavar="N", help="of each arm (default: all cores; cpu)"
    )


def parse_options(given: argparse.Namespace) -> LearnerBenchmarkOptions:
    """Raises UserError."""
    if given.sequences < _GROUPS_OF or given.sequences % _GROUPS_OF or given.median < _SHORTEST_MEDIAN:
        raise UserError(f"--sequences is a multiple of {_GROUPS_OF} (a group), --median {_SHORTEST_MEDIAN} or more")
    if given.rounds < 1 or given.threads < 1:
        raise UserError("--rounds and --threads are 1 or more")
    if given.device == "cuda" and not torch.cuda.is_available():
        raise UserError("torch sees no CUDA device here: run it where there is one, or without --device cuda")
    return LearnerBenchmarkOptions(given.device, given.sequences, given.median, given.rounds, given.threads)


async def measure_learner(asked: LearnerBenchmarkOptions) -> LearnerBenchmarkReport:
    """Raises InfraError where a process of an arm dies."""
    return await asyncio.to_thread(_measure, asked)


def _measure(asked: LearnerBenchmarkOptions) -> LearnerBenchmarkReport:
    say = error_console().print
    with tempfile.TemporaryDirectory(prefix="ls-bench-") as folder:
        if asked.device == "cuda":
            return gpu_throughput.measure_gpu_throughput(
                Path(folder), gpu_throughput.QWEN3, "cuda", sequences=asked.sequences, rounds=asked.rounds, say=say
            )
        return cpu_comparison.compare_on_cpu(
            Path(folder),
            sequences=asked.sequences,
            middle=asked.median,
            rounds=asked.rounds,
            threads=asked.threads,
            say=say,
        )
