"""Trajectories for tests: small, valid, and told apart by what the test asks for."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from protocol.groups import GroupPlan
from protocol.trajectory import (
    EpisodeStatus,
    GroupId,
    Reward,
    RolloutRequest,
    Segment,
    TestResult,
    Trajectory,
    Turn,
    TurnKind,
)

RUN = "test-run"


def make_plan(group: int = 0, size: int = 4) -> GroupPlan:
    return GroupPlan(GroupId(group), f"task-{group}", tuple(range(7, 7 + size)))


def make_segment(prompt: int = 3, sampled: int = 5, version: int = 0, first: int = 100) -> Segment:
    """``prompt`` tokens without loss, then ``sampled`` ones made by ``version``."""
    length = prompt + sampled
    mask = np.array([0] * prompt + [1] * sampled, dtype=np.uint8)
    return Segment(
        token_ids=np.arange(first, first + length, dtype=np.int32),
        loss_mask=mask,
        logprobs=(mask * -0.5).astype(np.float32),
        versions=np.where(mask == 1, version, -1).astype(np.int32),
        turns=(
            Turn(TurnKind.PROMPT, 0, prompt),
            Turn(TurnKind.MODEL, prompt, length, "shell", exit_code=0, duration_ms=1.5, key_version=version),
        ),
    )


def make_trajectory(
    group: int = 0,
    sample: int = 0,
    *,
    reward: float = 0.0,
    size: int = 4,
    attempt: int = 0,
    run_id: str = RUN,
    sampled: int = 5,
    segments: tuple[Segment, ...] | None = None,
) -> Trajectory:
    return Trajectory(
        request=RolloutRequest(run_id, GroupId(group), sample, size, f"task-{group}", 7 + sample, attempt),
        status=EpisodeStatus.COMPLETED,
        reward=Reward(reward, {"outcome": reward}),
        segments=(make_segment(sampled=sampled),) if segments is None else segments,
        tests=(TestResult("test_one", reward > 0),),
        engine="engine-0",
        node="node-0",
        worker="worker-0",
        started_at=1.7e9,
        timings_ms={"total": 12.5},
    )


def assert_equal(left: Trajectory, right: Trajectory) -> None:
    assert replace(left, segments=()) == replace(right, segments=())
    assert len(left.segments) == len(right.segments)
    for mine, yours in zip(left.segments, right.segments, strict=True):
        for each in fields(Segment):
            one, other = getattr(mine, each.name), getattr(yours, each.name)
            if isinstance(one, np.ndarray):
                assert one.dtype == other.dtype
                assert one.tobytes() == other.tobytes()
            else:
                assert one == other
