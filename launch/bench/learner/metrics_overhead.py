"""Measures how much of a step's time goes into reported metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from learner.data import batch, token_account
from learner.losses import metrics
from learner.models import logprobs

_REPORTED: dict[str, Callable[..., object]] = {
    "learner.losses.policy_loss.observe": metrics.sum_policy_metrics,
    "learner.training.update.summarise": metrics.summarise_metrics,
    "learner.data.batch.account": token_account.account_tokens,
    "learner.data.batch.staleness": batch.staleness_metrics,
}
"""Functions that only compute metrics, by the name under which the step calls them.  Entropy is part of another
function."""


@dataclass(slots=True)
class MetricsTime:
    """The time of a step, in seconds."""

    metrics: list[float] = field(default_factory=list[float])
    measuring: list[float] = field(default_factory=list[float])
    """Seconds spent on metrics."""


@contextmanager
def time_metrics() -> Generator[MetricsTime]:
    """Measure the time that steps in this process spend on metrics while the body runs."""
    spent = MetricsTime()
    with ExitStack() as replaced:
        for name, function in _REPORTED.items():
            replaced.enter_context(patch(name, _timed(function, spent)))
        replaced.enter_context(patch("learner.model.token_logprobs", _without_and_with_entropy(spent)))
        yield spent


def _timed(function: Callable[..., object], spent: MetricsTime) -> Callable[..., object]:
    def call(*args: object, **kwargs: object) -> object:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent.metrics.append(time.perf_counter() - began)

    return call


def _without_and_with_entropy(spent: MetricsTime) -> Callable[..., object]:
    def call(*args: Any, entropy: bool, **kwargs: Any) -> object:
        began = time.perf_counter()
        logprobs.token_logprobs(*args, entropy=False, **kwargs)
        between = time.perf_counter()
        found = logprobs.token_logprobs(*args, entropy=entropy, **kwargs)
        without, with_entropy = between - began, time.perf_counter() - between
        spent.measuring.append(without)
        spent.metrics.append(with_entropy - without)
        return found

    return call
