"""Records of evaluation attempts."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.evaluation import AttemptRecord, AttemptUsage, AttemptVerdict
from protocol.trajectory import EpisodeStatus, RolloutRequest


def make_attempt(
    task: str,
    *,
    passed: bool = True,
    family: str = "f",
    number: int = 0,
    greedy: bool = False,
    versions: Sequence[int] = (),
    recording: str = "",
) -> AttemptRecord:
    verdict = AttemptVerdict(passed, float(passed), float(passed), EpisodeStatus.COMPLETED)
    usage = AttemptUsage(completion_tokens=5)
    return AttemptRecord(
        task, number, family, 1.0, verdict, None, usage, greedy=greedy, versions=tuple(versions), recording=recording
    )


def attempt_for_request(request: RolloutRequest, *versions: int, passed: bool = True) -> AttemptRecord:
    """An attempt at what a scheduler has requested."""
    return make_attempt(request.task, passed=passed, number=request.sample, greedy=request.greedy, versions=versions)
