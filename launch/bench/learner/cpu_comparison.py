"""Compares one optimizer step on the CPU with plain Hugging Face and AdamW, with padded, sorted and packed batches.

All arms train the same 10 M parameters in float32 on the same batch, whose lengths are log-normal with a 95th
percentile of 16 times the median.  The arms take turns within each round, and the median over the rounds counts.  A
first round warms up, checks that all gradients are equal, and chooses the faster attention and packed micro-batch
size for Hugging Face.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

from launch.bench.isolated_process import IsolatedProcess, isolate
from launch.bench.learner.hugging_face import Batching, HuggingFaceStep, StepVariant
from launch.bench.learner.longshore_step import LongshoreStep
from launch.bench.learner.peak_memory import measure_peaks, measure_recompute_peaks
from launch.bench.learner.workload import TEN_MILLION, LearnerWorkload, build_workload_model, log_normal_lengths
from learner.settings import TrainerSettings
from learner.spec import LearnerSpec
from protocol.errors import InfraError
from protocol.events import JsonValue

_LR = 1e-9
"""Learning rate so small that the arms keep the same gradient after different numbers of steps."""
_SAME = 1e-4
"""Accepted relative difference of gradient norms."""
_ATTENTIONS = ("sdpa", "eager")
_PACKED_TOKENS = (0, 1024, 2048, 4096)


@dataclass(frozen=True, slots=True)
class CpuComparisonReport:
    tokens: int
    """Number of tokens in the batch."""
    ours_s: float
    hf_padded_s: float
    hf_sorted_s: float
    hf_packed_s: float
    vs_hf_padded: float
    """Time of padded Hugging Face ÷ longshore's time."""
    vs_hf_sorted: float
    vs_hf_packed: float
    """Longshore's time ÷ time of packed Hugging Face."""
    metrics_share: float
    """Share of longshore's step that computes metrics."""
    peak_bytes: int
    hf_peak_bytes: int
    recompute_peak_bytes: dict[str, int]

    @property
    def passed(self) -> bool:
        """Always true: results depend on the machine."""
        return True

    def as_json(self) -> dict[str, JsonValue]:
        return dict(asdict(self))


def compare_on_cpu(
    folder: Path, *, sequences: int, middle: int, rounds: int, threads: int, say: Callable[[str], None]
) -> CpuComparisonReport:
    """Compare on ``sequences`` trajectories with a median of ``middle`` tokens; ``folder`` is empty.  Raises
    InfraError."""
    work, model = LearnerWorkload(TEN_MILLION, log_normal_lengths(sequences, middle)), folder / "model"
    settings = TrainerSettings(threads=threads, lr=_LR)
    peak, hf_peak = measure_peaks(folder / "wide", settings)
    say(f"peak memory: ours {peak / 2**20:,.0f} MiB, packed Hugging Face {hf_peak / 2**20:,.0f} MiB")
    recomputed = measure_recompute_peaks(folder / "deep", settings)
    say(f"peak memory by recomputation: {', '.join(f'{w} {b / 2**20:,.0f} MiB' for w, b in recomputed.items())}")
    parameters = build_workload_model(work, model)
    say(f"{work.tokens} tokens in {len(work.lengths)} trajectories of {min(work.lengths)} to {max(work.lengths)}")
    say(f"{parameters / 1e6:.1f} M parameters, {threads} threads")
    with (
        isolate(partial(LongshoreStep, LearnerSpec(str(model), settings))) as ours,
        isolate(partial(HuggingFaceStep, work, model, threads=threads, lr=_LR)) as theirs,
    ):
        ways = _choose_variants(theirs, ours.call(LongshoreStep.take_step, work).grad_norm, say)
        shares: list[float] = []
        seconds: dict[str, list[float]] = {"ours": [], **{way.batching: [] for way in ways}}
        for number in range(rounds):
            seconds["ours"].append(ours.call(LongshoreStep.take_step, work).seconds)
            for way in ways:
                seconds[way.batching].append(theirs.call(HuggingFaceStep.take_step, way).seconds)
            shares.append(ours.call(LongshoreStep.measure_metrics_share, work))
            for name, found in seconds.items():
                say(f"round {number + 1}: {name:<8} {found[-1]:>8.2f} s")
    took = {name: median(found) for name, found in seconds.items()}
    return CpuComparisonReport(
        tokens=work.tokens,
        ours_s=round(took["ours"], 3),
        hf_padded_s=round(took[Batching.PADDED], 3),
        hf_sorted_s=round(took[Batching.SORTED], 3),
        hf_packed_s=round(took[Batching.PACKED], 3),
        vs_hf_padded=round(took[Batching.PADDED] / took["ours"], 3),
        vs_hf_sorted=round(took[Batching.SORTED] / took["ours"], 3),
        vs_hf_packed=round(took["ours"] / took[Batching.PACKED], 3),
        metrics_share=round(median(shares), 4),
        peak_bytes=peak,
        hf_peak_bytes=hf_peak,
        recompute_peak_bytes=recomputed,
    )


def _choose_variants(
    theirs: IsolatedProcess[HuggingFaceStep], grad_norm: float, say: Callable[[str], None]
) -> list[StepVariant]:
    """Return the fastest variant of each kind of batch.  Raises InfraError if a gradient differs from longshore's."""
    chosen: list[StepVariant] = []
    for batching in Batching:
        packed = _PACKED_TOKENS if batching is Batching.PACKED else (0,)
        tried = [StepVariant(batching, attention, tokens) for attention in _ATTENTIONS for tokens in packed]
        steps = {way: theirs.call(HuggingFaceStep.take_step, way) for way in tried}
        for way, step in steps.items():
            say(f"warm-up: {way.batching:<8} {way.attention:<6} {way.packed_tokens or '':>5} {step.seconds:>8.2f} s")
            if not math.isclose(step.grad_norm, grad_norm, rel_tol=_SAME):
                raise InfraError(f"{way} has a gradient norm of {step.grad_norm}, ours {grad_norm}: not the same step")
        chosen.append(min(tried, key=lambda way: steps[way].seconds))
    return chosen
