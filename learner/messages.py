"""What a learner rank is sent and answers.  Light: importing it loads no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.errors import InfraError, LongshoreError
from protocol.run_directory.trained_log import PackedTrainedTokens
from protocol.trajectory import DropReason, Int32Array, Uint8Array


class LearnerNotReadyError(LongshoreError):
    """A rank was called before the call that prepares it."""


class CheckpointSaveError(InfraError):
    """A checkpoint could not be written.  The learner is as it was: it may train on, and save again."""


@dataclass(frozen=True, slots=True, eq=False)
class SftBatch:
    sequences: list[tuple[Int32Array, Uint8Array]]
    """(token ids [T], loss mask [T]) each; the loss is averaged over all tokens with mask 1 but a sequence's first."""
    lr: float
    weights: Sequence[float] = ()
    """Of each sequence's tokens in that average; none given are all 1."""


@dataclass(frozen=True, slots=True)
class SftReport:
    loss: float
    grad_norm: float
    """Before clipping."""
    tokens: int
    """Of the sequences, prompts included."""
    trained_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TokenAccount:
    """Where the tokens of one step's batch went; see :mod:`learner.data.token_account`."""

    ages: tuple[int, ...] = ()
    """Sampled tokens by age, those without loss too."""
    share_by_decile: tuple[float, ...] = ()
    """Trained share by tenth of the trajectories' lengths, shortest first."""
    by_turn: tuple[tuple[int, int], ...] = ()
    """(sampled, trained) tokens by index of the model's turn."""
    untrained_tokens_by_length: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """Reason → bucket of length → tokens without loss: ``masked``, or why their trajectory was dropped."""


@dataclass(frozen=True, slots=True)
class StepReport:
    step: int
    trained: tuple[str, ...]
    """Trajectory ids, in payload order."""
    dropped: dict[str, DropReason]
    ages: tuple[int, ...]
    """Tokens with loss by age in optimizer steps: the first entry counts age 0."""
    metrics: dict[str, float]
    """Of the whole batch: those of :mod:`learner.losses.metrics`, :mod:`learner.training.update`,
    :mod:`learner.training.step_report` and :func:`learner.data.batch.read_batch`.  ``updated`` is 0 where the weights
    stayed: no token had loss, or no update was finite (``nonfinite_updates``); the loss metrics are then absent."""
    account: TokenAccount = TokenAccount()
    records: Mapping[str, PackedTrainedTokens] = field(default_factory=dict[str, PackedTrainedTokens])
    """Of each trained trajectory, what was made of its tokens: for people.  From rank 0 alone."""
