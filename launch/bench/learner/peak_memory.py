"""Measures the peak memory of a process that takes two steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from launch.bench.isolated_process import isolate
from launch.bench.learner.hugging_face import Batching, HuggingFaceStep, StepVariant
from launch.bench.learner.longshore_step import LongshoreStep
from launch.bench.learner.workload import TEN_MILLION, WIDE_VOCABULARY, LearnerWorkload, build_workload_model
from launch.bench.process_memory import peak_bytes
from learner.settings import Recompute, TrainerSettings
from learner.spec import LearnerSpec

Made = TypeVar("Made")

_WIDE = LearnerWorkload(WIDE_VOCABULARY, (512,) * 4)
_WHOLE = StepVariant(Batching.PACKED, packed_tokens=_WIDE.tokens, whole_logits=True)
_DEEP = LearnerWorkload(TEN_MILLION, (1024,) * 4)


def measure_peaks(folder: Path, settings: TrainerSettings) -> tuple[int, int]:
    """Return the peaks of longshore and of packed Hugging Face with whole logits, in bytes, for a vocabulary of
    151,936 tokens. The model's body is small, so that the output layer dominates.  ``folder`` is empty.
    """
    build_workload_model(_WIDE, folder)
    ours = partial(LongshoreStep, LearnerSpec(str(folder), settings))
    theirs = partial(HuggingFaceStep, _WIDE, folder, threads=settings.threads, lr=settings.lr)
    return _measure_peak(ours, partial(LongshoreStep.take_step, work=_WIDE)), _measure_peak(
        theirs, partial(HuggingFaceStep.take_step, way=_WHOLE)
    )


def measure_recompute_peaks(folder: Path, settings: TrainerSettings) -> dict[str, int]:
    """Return longshore's peak in bytes by kind of recomputation, where a pass of 4,096 tokens dominates.  ``folder``
    is empty."""
    build_workload_model(_DEEP, folder)
    ways = {way: LearnerSpec(str(folder), settings.model_copy(update={"recompute": way})) for way in Recompute}
    return {
        way.value: _measure_peak(partial(LongshoreStep, own), partial(LongshoreStep.take_step, work=_DEEP))
        for way, own in ways.items()
    }


def _measure_peak(make: Callable[[], Made], step: Callable[[Made], object]) -> int:
    with isolate(make) as made:
        for _ in range(2):  # the second has Adam's moments
            made.call(step)
        return made.call(_bytes)


def _bytes(_: object) -> int:
    return peak_bytes()
