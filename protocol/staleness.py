"""Admission and age: pure rules, no clock, no I/O.

Admission bounds how far rollout may run ahead of training: group i (counted from 0, dropped groups left out) is trained
by step ⌊i ÷ groups_per_step⌋, so opening it only while ⌊i ÷ groups_per_step⌋ ≤ published step + lead keeps the age of
what is *begun* at or below the lead (:func:`actors.scheduler.admission.decide`).  Three leads: sync 0, one-step-off 1,
async η.  What is begun in time may still end late: the age of each token is taken at the step that uses it, and the
policy decides on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from protocol.trajectory import DropReason, Int32Array, Segment, Uint8Array
from protocol.weights import Lineage


class AdmissionMode(StrEnum):
    SYNC = "sync"
    """A step's groups are opened when the weights of the step before it are in use."""
    ONE_STEP_OFF = "one_step_off"
    """Rollout works one step ahead."""
    ASYNC = "async"
    """Rollout works up to η steps ahead."""

    def publish_every(self, asked: int) -> int:
        """Steps from one set of weights to the next where ``asked`` is what async should have: in the other modes
        rollout waits for the weights of every step."""
        return asked if self is AdmissionMode.ASYNC else 1


class StaleTokenPolicy(StrEnum):
    MASK = "mask"
    """Tokens above η get no loss; the trajectory and its baseline stay."""
    WAIT = "wait"
    """The learner does not step past what a running trajectory can bear; see :func:`may_step`.  A token that is above
    η all the same (after a resume, say) is masked: the bound is hard."""
    DROP = "drop"
    """A trajectory with any token above η is dropped whole.  Favours short episodes; kept for comparison."""


@dataclass(frozen=True, slots=True)
class AdmissionLimit:
    """How many groups may be out."""

    mode: AdmissionMode
    groups_per_step: int
    max_staleness: int
    """Age bound in optimizer steps."""

    def __post_init__(self) -> None:
        if self.groups_per_step < 1 or self.max_staleness < 0:
            raise ValueError(f"groups_per_step {self.groups_per_step} must be ≥ 1 and eta {self.max_staleness} ≥ 0")
        if self.mode is AdmissionMode.ONE_STEP_OFF and self.max_staleness < 1:
            raise ValueError("one_step_off makes tokens of age 1: set eta to 1 or more, or mode to sync")

    @property
    def max_steps_ahead(self) -> int:
        """Steps that rollout may run ahead of the weights in use."""
        match self.mode:
            case AdmissionMode.SYNC:
                return 0
            case AdmissionMode.ONE_STEP_OFF:
                return 1
            case AdmissionMode.ASYNC:
                return self.max_staleness


def may_take_step(step: int, oldest_running_step: int | None, max_staleness: int) -> bool:
    """Whether ``wait`` lets the learner go from ``step`` to ``step + 1``: not while a group that is still running
    holds a token made at ``oldest_running_step`` (see :func:`binding_step`) that the weights of ``step + 1`` may no
    longer use."""
    return oldest_running_step is None or step + 1 - oldest_running_step <= max_staleness


def find_binding_step(running: Sequence[int], ready: Sequence[int], groups_per_step: int) -> int | None:
    """The step that binds the policy ``wait``, for groups opened at the steps ``running`` (still open) and ``ready``
    (closed, to be trained after the step that is about to be taken).

    The oldest groups are trained first, ``groups_per_step`` a step, so the r-th oldest waits ⌊r ÷ groups_per_step⌋
    steps more: it is as if it had been opened so many steps earlier.  Only those bind for whose sake waiting helps:
    where no group that was opened then, or before, still runs, all has been done.  None where nothing runs.
    """
    oldest = min(running, default=None)
    if oldest is None:
        return None
    waiting = sorted((*running, *ready))
    return min(step - rank // groups_per_step for rank, step in enumerate(waiting) if step >= oldest)


def token_ages(versions: Int32Array, loss_mask: Uint8Array, lineage: Lineage, using_version: int) -> Int32Array:
    """Age [T] of each sampled token, in optimizer steps, when the weights ``using_version`` use it; −1 where
    ``loss_mask`` is 0.  Raises KeyError for a version that is not in ``lineage``."""
    ages = np.full(versions.shape, -1, dtype=np.int32)
    sampled = loss_mask == 1
    unique, inverse = np.unique(versions[sampled], return_inverse=True)
    by_version = np.array([lineage.age(int(version), using_version) for version in unique], dtype=np.int32)
    ages[sampled] = by_version[inverse]
    return ages


@dataclass(frozen=True, slots=True, eq=False)
class StalenessVerdict:
    """What a policy leaves of one trajectory."""

    loss_masks: tuple[Uint8Array, ...]
    """Per segment, uint8 [T]: 1 where the token was sampled and keeps its loss."""
    ages: tuple[Int32Array, ...]
    """Per segment, int32 [T]: as :func:`token_ages` gives them."""
    drop: DropReason | None
    """Set when nothing is left: the trajectory is dropped, and ``loss_masks`` is all 0."""
    sampled: int
    trained: int
    """Tokens with loss; ``trained ÷ sampled`` is the trained share."""


def length_bucket(sampled: int) -> str:
    """The bucket of a trajectory of so many sampled tokens, named by its lower end: a power of two."""
    return str(1 << max(0, sampled.bit_length() - 1))


def staleness_loss_mask(policy: StaleTokenPolicy, ages: Int32Array, max_staleness: int) -> npt.NDArray[np.bool_]:
    """Which of one trajectory's ``ages`` (−1 where nothing was sampled) keep their loss under ``policy``, the bound
    ``eta``, and whatever each of them stands for: a token, or a run of tokens of one age."""
    if policy is StaleTokenPolicy.DROP and int(ages.max(initial=-1)) > max_staleness:
        return np.zeros(ages.shape, np.bool_)
    return (ages >= 0) & (ages <= max_staleness)


def apply_stale_token_policy(
    policy: StaleTokenPolicy, segments: Sequence[Segment], lineage: Lineage, using_version: int, max_staleness: int
) -> StalenessVerdict:
    """Apply ``policy`` with age bound ``eta`` to one trajectory at the step that uses it.

    A trajectory of which no token keeps its loss is dropped, reason ``all_stale``; under ``drop`` one token above
    ``eta`` is enough for that.
    """
    ages = [token_ages(segment.versions, segment.loss_mask, lineage, using_version) for segment in segments]
    every = np.concatenate(ages) if ages else np.zeros(0, np.int32)
    kept = staleness_loss_mask(policy, every, max_staleness).astype(np.uint8)
    masks = np.split(kept, np.cumsum([len(age) for age in ages])[:-1]) if ages else []
    trained = int(kept.sum())
    return StalenessVerdict(
        tuple(masks),
        tuple(ages),
        None if trained else DropReason.ALL_STALE,
        int((every >= 0).sum()),
        trained,
    )
