"""One optimizer step of the learner on the CPU, beside plain Hugging Face and AdamW: padded, sorted, packed.

All arms train the same 10 M parameters in float32 on the same batch, whose lengths are log-normal with a 95th percentile
of 16 times the median; each takes its turn within each round, and the median over the rounds counts.  A round before
them warms up and chooses for Hugging Face: the faster attention, and the best size of a packed micro-batch.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

from launch.bench.learner.hugging_face import PADDED_ROWS, Batching, HuggingFace, Way
from launch.bench.learner.memory import peaks
from launch.bench.learner.ours import Ours
from launch.bench.learner.processes import Process, process
from launch.bench.learner.workload import TEN_MILLION, Work, build_model, log_normal_lengths
from protocol.cli.output import error_console
from protocol.errors import UserError
from protocol.events import Json

_LR = 1e-6
_ATTENTIONS = ("sdpa", "eager")
_PACKED_TOKENS = (0, 1024, 2048, 4096)
_GROUPS_OF = 8


@dataclass(frozen=True, slots=True)
class Options:
    sequences: int
    median: int
    """Tokens."""
    rounds: int
    threads: int


@dataclass(frozen=True, slots=True)
class Report:
    tokens: int
    """Of the batch."""
    ours_s: float
    hf_padded_s: float
    hf_sorted_s: float
    hf_packed_s: float
    vs_hf_padded: float
    """How many times faster ours is."""
    vs_hf_sorted: float
    vs_hf_packed: float
    """How much of its time ours takes."""
    metrics_share: float
    peak_bytes: int
    hf_peak_bytes: int

    @property
    def holds(self) -> bool:
        """A figure fails nothing: what is reached says as much of the machine."""
        return True

    def as_json(self) -> dict[str, Json]:
        return dict(asdict(self))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sequences", type=int, default=64, metavar="N", help="trajectories in the batch (default 64)")
    parser.add_argument("--median", type=int, default=32, metavar="TOKENS", help="their median length (default 32)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the median of which counts (default 3)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, metavar="N", help="of each arm (default: all cores)"
    )


def options(given: argparse.Namespace) -> Options:
    """Raises UserError."""
    if given.sequences < _GROUPS_OF or given.sequences % _GROUPS_OF or given.median < 8:
        raise UserError(f"--sequences is a multiple of {_GROUPS_OF} (a group), --median 8 tokens or more")
    if given.rounds < 1 or given.threads < 1:
        raise UserError("--rounds and --threads are 1 or more")
    return Options(given.sequences, given.median, given.rounds, given.threads)


async def measure(asked: Options) -> Report:
    """Raises InfraError where a process of an arm dies."""
    return await asyncio.to_thread(_measure, asked, error_console().print)


def _measure(asked: Options, say: Callable[[str], None]) -> Report:
    with tempfile.TemporaryDirectory(prefix="ls-bench-") as folder:
        peak, hf_peak = peaks(Path(folder) / "wide", threads=asked.threads, lr=_LR)
        say(f"peak memory: ours {peak / 2**20:,.0f} MiB, packed Hugging Face {hf_peak / 2**20:,.0f} MiB")
        work = Work(TEN_MILLION, log_normal_lengths(asked.sequences, asked.median))
        parameters = build_model(work, Path(folder) / "model")
        say(f"{work.tokens} tokens in {len(work.lengths)} trajectories of {min(work.lengths)} to {max(work.lengths)}")
        say(f"{parameters / 1e6:.1f} M parameters, {asked.threads} threads")
        make = {"threads": asked.threads, "lr": _LR}
        with (
            process(partial(Ours, work, Path(folder) / "model", **make)) as ours,
            process(partial(HuggingFace, work, Path(folder) / "model", **make)) as theirs,
        ):
            ours.call(Ours.step)
            ways = _best_ways(theirs, say)
            seconds: dict[str, list[float]] = {"ours": [], **{way.batching: [] for way in ways}}
            for number in range(asked.rounds):
                seconds["ours"].append(ours.call(Ours.step))
                for way in ways:
                    seconds[way.batching].append(theirs.call(HuggingFace.step, way))
                for name, found in seconds.items():
                    say(f"round {number + 1}: {name:<8} {found[-1]:>8.2f} s")
    middle = {name: median(found) for name, found in seconds.items()}
    return Report(
        tokens=work.tokens,
        ours_s=round(middle["ours"], 3),
        hf_padded_s=round(middle[Batching.PADDED], 3),
        hf_sorted_s=round(middle[Batching.SORTED], 3),
        hf_packed_s=round(middle[Batching.PACKED], 3),
        vs_hf_padded=round(middle[Batching.PADDED] / middle["ours"], 3),
        vs_hf_sorted=round(middle[Batching.SORTED] / middle["ours"], 3),
        vs_hf_packed=round(middle["ours"] / middle[Batching.PACKED], 3),
        metrics_share=0.0,
        peak_bytes=peak,
        hf_peak_bytes=hf_peak,
    )


def _best_ways(theirs: Process[HuggingFace], say: Callable[[str], None]) -> Sequence[Way]:
    """One of each batching: the attention, and the tokens of a packed micro-batch, that took the least time."""
    chosen: list[Way] = []
    for batching in Batching:
        packed = _PACKED_TOKENS if batching is Batching.PACKED else (0,)
        tried = [Way(batching, attention, tokens) for attention in _ATTENTIONS for tokens in packed]
        seconds = {way: theirs.call(HuggingFace.step, way) for way in tried}
        for way, took in seconds.items():
            say(f"warm-up: {way.batching:<8} {way.attention:<6} {way.packed_tokens or '':>5} {took:>8.2f} s")
        chosen.append(min(tried, key=lambda way: seconds[way]))
    return chosen
