"""Sorts out of a leased batch what this learner cannot use, so that it ends no run: see :mod:`protocol.usability`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import NamedTuple

from protocol.codec import inspect_blob
from protocol.usability import TrajectoryLimits


class UsableBatch(NamedTuple):
    payload: list[bytes]
    """The encoded trajectories that can be used."""
    faults: dict[str, str]
    """Reason by trajectory id of each of the others."""


def sort_out_unusable(payload: Sequence[bytes], versions: Container[int], limits: TrajectoryLimits) -> UsableBatch:
    """Return what can be used and the reasons against the rest.  A trajectory whose whole group is sorted out has no
    baseline, and is sorted out too.  Raises CodecError for bytes that are not a trajectory."""
    summaries = [inspect_blob(blob) for blob in payload]
    faults = {
        summary.request.trajectory_id: fault
        for summary in summaries
        if (fault := limits.find_fault(summary, versions)) is not None
    }
    if not faults:
        return UsableBatch(list(payload), faults)
    usable = [summary.request for summary in summaries if summary.request.trajectory_id not in faults]
    members = Counter(request.group for request in usable)
    faults |= {
        request.trajectory_id: "no other trajectory of its group can be used"
        for request in usable
        if members[request.group] == 1
    }
    kept = [
        blob for blob, summary in zip(payload, summaries, strict=True) if summary.request.trajectory_id not in faults
    ]
    return UsableBatch(kept, faults)
