"""Pure rules for admission and staleness of a token, without clock or I/O.

Admission bounds how far rollout may run ahead of training.  Group i (counted from 0, without dropped groups) is trained
by step ⌊i ÷ groups_per_step⌋, so opening it only while ⌊i ÷ groups_per_step⌋ ≤ served step + steps ahead bounds the
staleness of groups at their start (:func:`actors.scheduler.admission.decide_admission`).  Steps ahead are 0 for sync, 1
for one-step-off and ``max_staleness`` for async.  An episode may still end late: a token's staleness is measured
at the step that uses it, and the stale-token policy decides on the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from protocol.trajectory import DropReason, Int32Array, Segment, Uint8Array
from protocol.weights import Lineage

_DECILES = 10
DEFAULT_PUBLISH_EVERY = 1
"""Optimizer steps between two weight versions that the engines get."""


class AdmissionMode(StrEnum):
    SYNC = "sync"
    """A step's groups are opened when the weights of the previous step are in use."""
    ONE_STEP_OFF = "one_step_off"
    """Rollout runs one step ahead."""
    ASYNC = "async"
    """Rollout runs up to ``max_staleness`` steps ahead."""

    def publish_every(self, async_interval: int) -> int:
        """Return the number of steps between published weights: ``async_interval`` in async mode, else 1, because
        rollout waits for the weights of every step."""
        return async_interval if self is AdmissionMode.ASYNC else 1


class StaleTokenPolicy(StrEnum):
    MASK = "mask"
    """Tokens above the bound get no loss; the trajectory and its baseline stay."""
    WAIT = "wait"
    """The learner waits instead of making a running trajectory too old.  A token that is
    above the bound anyway, for example after a resume, is masked: the bound is hard."""
    DROP = "drop"
    """A trajectory with any token above the bound is dropped.  Favours short episodes; kept for comparison."""


@dataclass(frozen=True, slots=True)
class AdmissionLimit:
    """Limit of the number of open groups."""

    mode: AdmissionMode
    groups_per_step: int
    max_staleness: int
    """Largest staleness of a token, in optimizer steps."""

    def __post_init__(self) -> None:
        if self.groups_per_step < 1 or self.max_staleness < 0:
            raise ValueError(
                f"groups_per_step {self.groups_per_step} must be ≥ 1, max_staleness {self.max_staleness} must be ≥ 0"
            )
        if self.mode is AdmissionMode.ONE_STEP_OFF and self.max_staleness < 1:
            raise ValueError("one_step_off makes tokens a step stale: set max_staleness to 1 or more, or mode to sync")

    @property
    def max_steps_ahead(self) -> int:
        """Number of steps that rollout may run ahead of the weights in use."""
        match self.mode:
            case AdmissionMode.SYNC:
                return 0
            case AdmissionMode.ONE_STEP_OFF:
                return 1
            case AdmissionMode.ASYNC:
                return self.max_staleness


def may_take_step(step: int, oldest_running_step: int | None, max_staleness: int) -> bool:
    """Return whether the policy ``wait`` lets the learner go from ``step`` to ``step + 1``.

    It may not while a running group holds a token made at ``oldest_running_step`` (see
    :func:`find_oldest_running_step`) that would be too old for the weights of ``step + 1``.
    """
    return oldest_running_step is None or step + 1 - oldest_running_step <= max_staleness


def find_oldest_running_step(running: Sequence[int], ready: Sequence[int], groups_per_step: int) -> int | None:
    """Return the oldest start of a running group, as the policy ``wait`` counts it; None if no group is running.

    ``running`` and ``ready`` are the steps at which the open groups, and the closed groups that wait for a later step
    than the next, were opened.  The oldest groups are trained first, ``groups_per_step`` per step, so the r-th oldest
    waits ⌊r ÷ groups_per_step⌋ more steps, as if it had been opened that much earlier.  Groups older than the oldest
    running one do not bind: waiting cannot help them.
    """
    oldest = min(running, default=None)
    if oldest is None:
        return None
    waiting = sorted((*running, *ready))
    return min(step - rank // groups_per_step for rank, step in enumerate(waiting) if step >= oldest)


def token_staleness(versions: Int32Array, loss_mask: Uint8Array, lineage: Lineage, using_version: int) -> Int32Array:
    """Return the staleness [T] of each sampled token in optimizer steps, relative to the weights ``using_version``; −1
    where ``loss_mask`` is 0.  Raises KeyError for a version that is not in ``lineage``."""
    staleness = np.full(versions.shape, -1, dtype=np.int32)
    sampled = loss_mask == 1
    unique, inverse = np.unique(versions[sampled], return_inverse=True)
    by_version = np.array([lineage.staleness(int(version), using_version) for version in unique], dtype=np.int32)
    staleness[sampled] = by_version[inverse]
    return staleness


@dataclass(frozen=True, slots=True, eq=False)
class StalenessVerdict:
    """Loss masks and staleness of one trajectory under a stale-token policy."""

    loss_masks: tuple[Uint8Array, ...]
    """uint8 [T] per segment: 1 where the token was sampled and keeps its loss."""
    staleness: tuple[Int32Array, ...]
    """int32 [T] per segment: the result of :func:`token_staleness`."""
    drop: DropReason | None
    """Set if no token keeps its loss: the trajectory is dropped, and ``loss_masks`` is all 0."""
    sampled: int
    trained: int
    """Number of tokens with loss; ``trained ÷ sampled`` is the trained share."""


def length_bucket(sampled: int) -> str:
    """Return the length bucket of a trajectory with ``sampled`` tokens, named by its lower end, a power of two."""
    return str(1 << max(0, sampled.bit_length() - 1))


def trained_share_by_decile(sampled: Sequence[int], trained: Sequence[int]) -> tuple[float, ...]:
    """Return the trained share of the tokens in each tenth of the trajectories by length, shortest first.

    ``sampled`` and ``trained`` are tokens by trajectory.  Empty for fewer than ten trajectories.
    """
    if len(sampled) < _DECILES:
        return ()
    ordered = sorted(range(len(sampled)), key=sampled.__getitem__)
    ends = [len(ordered) * tenth // _DECILES for tenth in range(_DECILES + 1)]
    tenths = [ordered[start:end] for start, end in pairwise(ends)]
    return tuple(
        sum(trained[each] for each in tenth) / max(1, sum(sampled[each] for each in tenth)) for tenth in tenths
    )


def staleness_loss_mask(policy: StaleTokenPolicy, staleness: Int32Array, max_staleness: int) -> npt.NDArray[np.bool_]:
    """Return for which values of one trajectory's ``staleness`` (−1 where nothing was sampled) the loss is kept under
    ``policy``.  A value may stand for a token or a run of tokens."""
    if policy is StaleTokenPolicy.DROP and int(staleness.max(initial=-1)) > max_staleness:
        return np.zeros(staleness.shape, np.bool_)
    return (staleness >= 0) & (staleness <= max_staleness)


def apply_stale_token_policy(
    policy: StaleTokenPolicy, segments: Sequence[Segment], lineage: Lineage, using_version: int, max_staleness: int
) -> StalenessVerdict:
    """Apply ``policy`` to one trajectory at the step that uses it.

    A trajectory without any token that keeps its loss is dropped with reason ``all_stale``; under ``drop`` one token
    above ``max_staleness`` suffices.
    """
    staleness = [token_staleness(segment.versions, segment.loss_mask, lineage, using_version) for segment in segments]
    every = np.concatenate(staleness) if staleness else np.zeros(0, np.int32)
    kept = staleness_loss_mask(policy, every, max_staleness).astype(np.uint8)
    masks = np.split(kept, np.cumsum([len(each) for each in staleness])[:-1]) if staleness else []
    trained = int(kept.sum())
    return StalenessVerdict(
        tuple(masks),
        tuple(staleness),
        None if trained else DropReason.ALL_STALE,
        int((every >= 0).sum()),
        trained,
    )
