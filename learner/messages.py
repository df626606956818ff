"""Inputs, reports and errors of a learner rank.  Importing this module loads no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.errors import InfraError, LongshoreError
from protocol.run_directory.trained_log import PackedTrainedTokens
from protocol.trajectory import DropReason, Int32Array, Uint8Array


class LearnerNotReadyError(LongshoreError):
    """A rank was called before the call that prepares it."""


class CheckpointSaveError(InfraError):
    """A checkpoint could not be written.  The learner is unchanged: it may continue training and save again."""


@dataclass(frozen=True, slots=True, eq=False)
class SftBatch:
    sequences: list[tuple[Int32Array, Uint8Array]]
    """(token ids [T], loss mask [T]) per sequence; the loss averages all tokens with mask 1 except a sequence's
    first."""
    lr: float
    weights: Sequence[float] = ()
    """Weight of each sequence's tokens in that average; empty for 1."""


@dataclass(frozen=True, slots=True)
class SftReport:
    loss: float
    grad_norm: float
    """Gradient norm before clipping."""
    tokens: int
    """Number of tokens of the sequences, prompts included."""
    trained_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TokenAccount:
    """Account of the tokens of one step's batch; see :mod:`learner.data.token_account`."""

    staleness_histogram: tuple[int, ...] = ()
    """Number of sampled tokens by staleness, including those without loss."""
    share_by_decile: tuple[float, ...] = ()
    """Trained share by decile of the trajectories' lengths, shortest first."""
    by_turn: tuple[tuple[int, int], ...] = ()
    """Number of (sampled, trained) tokens by index of the model's turn."""
    untrained_tokens_by_length: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """Reason → length bucket → tokens without loss; the reason is ``masked`` or that of a dropped trajectory."""


@dataclass(frozen=True, slots=True)
class StepReport:
    step: int
    trained: tuple[str, ...]
    """Ids of trained trajectories, in payload order."""
    dropped: dict[str, DropReason]
    staleness_histogram: tuple[int, ...]
    """Number of tokens with loss by staleness in optimizer steps, from 0."""
    metrics: dict[str, float]
    """Metrics of the whole batch: those of :mod:`learner.losses.metrics`, :mod:`learner.training.update`,
    :mod:`learner.training.step_report` and :func:`learner.data.batch.read_batch`.  ``updated`` is 0 if the weights
    did not change: no token had loss, or no update was finite (``nonfinite_updates``); the loss metrics are then
    absent."""
    account: TokenAccount = TokenAccount()
    records: Mapping[str, PackedTrainedTokens] = field(default_factory=dict[str, PackedTrainedTokens])
    """Token values of each trained trajectory, for display; only from rank 0."""
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why each trajectory that was dropped as unusable cannot be trained."""
