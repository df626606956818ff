"""Counts the tokens of one simulated row by staleness, length and turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.staleness import trained_share_by_decile
from protocol.trajectory import DropReason


class ConsumedTrajectory(NamedTuple):
    """One trajectory at the step that used it, as runs of tokens with the same turn and staleness."""

    staleness: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int64]
    kept: npt.NDArray[np.bool_]
    turns: npt.NDArray[np.int32]
    seconds: float

    @property
    def sampled(self) -> int:
        return int(self.tokens.sum())

    @property
    def trained(self) -> int:
        return int(self.tokens[self.kept].sum())


class QueueSample(NamedTuple):
    """The queues at the end of a step."""

    step: int
    at_s: float
    in_flight: int
    ready_groups: int
    trained_tokens: int
    staleness_mean: float


@dataclass(slots=True)
class TokenAccounting:
    """Counts tokens and times from the end of step ``warm_up`` on."""

    warm_up: int
    begun_s: float = 0.0
    ended_s: float = 0.0
    samples: list[QueueSample] = field(default_factory=list[QueueSample])
    waited_s: float = 0.0
    _idle_before_s: float = 0.0
    _dropped_before: Counter[DropReason] = field(default_factory=Counter[DropReason])
    used: list[ConsumedTrajectory] = field(default_factory=list[ConsumedTrajectory])

    def add_wait(self, seconds: float) -> None:
        """Add time that the learner waited before a step."""
        if self.is_measuring:
            self.waited_s += seconds

    def add_consumed(self, consumed: Sequence[ConsumedTrajectory]) -> None:
        """Add the trajectories of a batch, whether any token of it was trained or not."""
        if self.is_measuring:
            self.used += consumed

    @property
    def is_measuring(self) -> bool:
        return len(self.samples) >= self.warm_up

    def end_step(
        self, step: int, now: float, consumed: Sequence[ConsumedTrajectory], in_flight: int, ready: int
    ) -> None:
        """Record the end of a step that used ``consumed``."""
        self.add_consumed(consumed)
        kept = np.concatenate([use.tokens[use.kept] for use in consumed])
        staleness = np.concatenate([use.staleness[use.kept] for use in consumed])
        trained = int(kept.sum())
        mean = float((kept * staleness).sum()) / max(trained, 1)
        self.samples.append(QueueSample(step, now, in_flight, ready, trained, mean))
        if step <= self.warm_up:
            self.begun_s = now
        self.ended_s = now

    def end_warm_up(self, idle_s: float, dropped: Mapping[DropReason, int]) -> None:
        """Exclude the idle time and the drops until the end of step ``warm_up``."""
        self._idle_before_s, self._dropped_before = idle_s, Counter(dropped)

    # -- results -------------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        return self.ended_s - self.begun_s

    @property
    def sampled(self) -> int:
        return sum(use.sampled for use in self.used)

    @property
    def trained(self) -> int:
        return sum(use.trained for use in self.used)

    def engine_idle(self, idle_s: float, engines: int) -> float:
        """Return the idle share of ``engines`` that were idle for ``idle_s`` in total since the start."""
        return (idle_s - self._idle_before_s) / (self.seconds * engines)

    def count_dropped(self, dropped: Mapping[DropReason, int]) -> dict[str, int]:
        """Return the drops after the warm-up, given all drops since the start."""
        counted = Counter(dropped) - self._dropped_before
        return {reason.value: count for reason, count in sorted(counted.items())}

    def tokens_by_staleness(self) -> list[int]:
        """Return the number of trained tokens by staleness."""
        if not self.used:
            return []
        staleness = np.concatenate([use.staleness[use.kept] for use in self.used])
        tokens = np.concatenate([use.tokens[use.kept] for use in self.used])
        return [int(count) for count in np.bincount(staleness, weights=tokens)]

    def trained_share_by_decile(self) -> tuple[float, ...]:
        """Return the trained share of tokens in each tenth of the trajectories by length, shortest first."""
        return trained_share_by_decile([use.sampled for use in self.used], [use.trained for use in self.used])
