"""Measures how much of a step's time goes into reported metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from learner.data import batch
from learner.losses import policy_loss
from learner.models import logprobs, policy_model
from learner.training import update

_METRICS_FUNCTIONS = (
    (policy_loss, "sum_policy_metrics"),
    (update, "summarise_metrics"),
    (batch, "account_tokens"),
    (batch, "staleness_metrics"),
)
"""Functions that only compute metrics, each with the module that calls it.  Entropy is part of another function."""


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
        for module, name in _METRICS_FUNCTIONS:
            replaced.enter_context(patch.object(module, name, _timed(getattr(module, name), spent)))
        replaced.enter_context(patch.object(policy_model, "token_logprobs", _without_and_with_entropy(spent)))
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
