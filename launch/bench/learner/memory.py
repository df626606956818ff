"""Most memory of a process that takes two steps under a vocabulary of 151,936: ours, and packed Hugging Face with its
loss over whole logits.  The model's body is small, so that the output layer is nearly all of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from launch.bench.learner.hugging_face import Batching, HuggingFace, Way
from launch.bench.learner.ours import Ours, cpu_settings
from launch.bench.learner.processes import process
from launch.bench.learner.workload import WIDE_VOCABULARY, Work, build_model
from launch.bench.peak import peak_bytes

Made = TypeVar("Made")

_WORK = Work(WIDE_VOCABULARY, (512,) * 4)
_WHOLE = Way(Batching.PACKED, packed_tokens=_WORK.tokens, whole_logits=True)


def peaks(folder: Path, *, threads: int, lr: float) -> tuple[int, int]:
    """(ours, Hugging Face's) in bytes.  ``folder`` is empty."""
    build_model(_WORK, folder)
    ours = partial(Ours, cpu_settings(folder, threads=threads, lr=lr))
    theirs = partial(HuggingFace, _WORK, folder, threads=threads, lr=lr)
    return _peak(ours, partial(Ours.step, work=_WORK)), _peak(theirs, partial(HuggingFace.step, way=_WHOLE))


def _peak(make: Callable[[], Made], step: Callable[[Made], object]) -> int:
    with process(make) as made:
        for _ in range(2):  # the second has Adam's moments
            made.call(step)
        return made.call(_bytes)


def _bytes(_: object) -> int:
    return peak_bytes()
