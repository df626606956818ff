"""One optimizer step of the learner on the CPU, beside plain Hugging Face and AdamW: padded, sorted, packed.

All arms train the same 10 M parameters in float32 on the same batch, whose lengths are log-normal with a 95th
percentile of 16 times the median; each takes its turn within each round, and the median over the rounds counts.  A
round before them warms up, makes sure that all have one gradient, and chooses for Hugging Face: the faster attention,
and the best size of a packed micro-batch.
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
"""So small that the arms keep one gradient, whose numbers of steps differ: Adam's steps are all of this size."""
_SAME = 1e-4
"""Relative difference of gradient norms."""
_ATTENTIONS = ("sdpa", "eager")
_PACKED_TOKENS = (0, 1024, 2048, 4096)


@dataclass(frozen=True, slots=True)
class CpuComparisonReport:
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
    """Of a step of ours."""
    peak_bytes: int
    hf_peak_bytes: int
    recompute_peak_bytes: dict[str, int]

    @property
    def holds(self) -> bool:
        """A figure fails nothing: what is reached says as much of the machine."""
        return True

    def as_json(self) -> dict[str, JsonValue]:
        return dict(asdict(self))


def compare_on_cpu(
    folder: Path, *, sequences: int, middle: int, rounds: int, threads: int, say: Callable[[str], None]
) -> CpuComparisonReport:
    """``sequences`` trajectories with a median of ``middle`` tokens; ``folder`` is empty.  Raises InfraError."""
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
    """One of each batching: the attention, and the tokens of a packed micro-batch, that took the least time.  Raises
    InfraError for one whose gradient is not ours."""
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
