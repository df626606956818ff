"""Pure rules for whether a run's learner can use a well-formed trajectory: it is of the run's weights and model.

The buffer refuses what it cannot use before it is acknowledged; the learner drops what a journal holds all the same.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from protocol.codec import TrajectorySummary
from protocol.trajectory import MAX_REWARD
from protocol.weights import format_version

_LEAST_GROUP = 2
_LARGEST_LOGPROB = 1e-3
"""A log-probability is at most 0, and an engine's rounding adds less than this."""


@dataclass(frozen=True, slots=True)
class TrajectoryLimits:
    """The most that a model and its learner can hold."""

    vocabulary: int
    """Number of token ids of the model."""
    longest_sequence: int
    """Most tokens of a sequence that the learner can hold."""
    most_segments: int | None = None
    """Most segments of an episode of the run's agent; None if that is not known.  The prefix of a segment is trained
    with it, so that a message of many short ones would keep the learner busy for hours."""

    def find_fault(self, summary: TrajectorySummary, versions: Container[int]) -> str | None:
        """Return why a trajectory cannot be trained by a run with these weight ``versions``; None if it can."""
        unknown = next((version for version in summary.versions if version not in versions), None)
        if unknown is not None:
            return f"it has tokens of version {format_version(unknown)} ({unknown}), which this run does not have"
        if summary.largest_token >= self.vocabulary:
            return f"it has token {summary.largest_token}, and the model's vocabulary has {self.vocabulary}"
        if summary.longest > self.longest_sequence:
            return f"it has a sequence of {summary.longest} tokens, and the learner holds {self.longest_sequence}"
        if self.most_segments is not None and summary.segments > self.most_segments:
            return f"it has {summary.segments} segments, and an episode of this run has {self.most_segments} at most"
        if summary.largest_logprob > _LARGEST_LOGPROB:
            return f"it has the log-probability {summary.largest_logprob:g}, which is above 0"
        if summary.largest_reward > MAX_REWARD:
            size = f"{summary.largest_reward:g}, above {MAX_REWARD:g}"
            return f"it has a reward, a part of one or a test's weight of size {size}"
        if summary.request.group_size < _LEAST_GROUP:
            return "it is a group of one, but its advantage is relative to its group"
        return None
