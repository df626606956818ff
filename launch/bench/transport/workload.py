"""The trajectories that are sent, like those of a terminal agent, and their number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from protocol.codec import encode_trajectory as encode_frames
from protocol.codec import payload_size
from protocol.groups import GroupPlan
from protocol.trajectory import EpisodeStatus, GroupId, Reward, RolloutRequest, Segment, Trajectory, Turn, TurnKind

RUN = "bench"
GROUP_SIZE = 16
TOKENS = (1024, 8192, 32768, 131072)
MAX_BYTES = 4 << 20
"""Limit above the largest trajectory."""
_TURN_TOKENS = 512
"""Number of tokens of a reply or an observation."""
_BYTES_TOKEN, _SEED = 13, 7


def build_trajectory(tokens: int) -> Trajectory:
    """Return a linear episode of ``tokens`` tokens: a prompt, then replies and observations."""
    mask = np.zeros(tokens, np.uint8)
    turns = [Turn(TurnKind.PROMPT, 0, min(_TURN_TOKENS, tokens))]
    for start in range(_TURN_TOKENS, tokens, _TURN_TOKENS):
        end = min(tokens, start + _TURN_TOKENS)
        if turns[-1].kind is not TurnKind.MODEL:
            turns.append(Turn(TurnKind.MODEL, start, end, "terminal", duration_ms=812.5, key_version=3))
            mask[start:end] = 1
        else:
            turns.append(Turn(TurnKind.OBSERVATION, start, end, "terminal", exit_code=0, duration_ms=31.25))
    rng = np.random.default_rng(tokens)
    segment = Segment(
        rng.integers(0, 150_000, tokens, np.int32),
        mask,
        (-rng.random(tokens, np.float32) * mask).astype(np.float32),
        np.where(mask == 1, np.int32(3), np.int32(-1)),
        tuple(turns),
    )
    rollout_request = RolloutRequest(RUN, GroupId(0), 0, GROUP_SIZE, "bench/task", _SEED)
    return Trajectory(
        rollout_request, EpisodeStatus.COMPLETED, Reward(1.0, {"outcome": 1.0}), (segment,), engine="e", node="n"
    )


def build_segmented_trajectory(tokens: int) -> Trajectory:
    """Return an episode of the same length in two segments, so that its frames are copies of its arrays."""
    half = build_trajectory(tokens // 2)
    return replace(half, segments=half.segments * 2)


def number_trajectories(base: Trajectory, most: int) -> Iterator[Trajectory]:
    """Return ``base`` under ``most`` different rollout requests."""
    for number in range(most):
        group, sample = divmod(number, GROUP_SIZE)
        yield replace(base, request=replace(base.request, group=GroupId(group), sample=sample))


def trajectory_number(rollout_request: RolloutRequest) -> int:
    """Return the number of a rollout request of :func:`number_trajectories`."""
    return rollout_request.group * GROUP_SIZE + rollout_request.sample


def group_plan(group: int) -> GroupPlan:
    return GroupPlan(GroupId(group), "bench/task", (_SEED,) * GROUP_SIZE)


def max_trajectories(tokens: int, seconds: float) -> int:
    """Return the number of trajectories for an arm of ``seconds``: more than any machine can send, in whole groups."""
    per_second = 4e9 / (tokens * _BYTES_TOKEN + 100_000)
    return max(1, int(per_second * seconds / GROUP_SIZE)) * GROUP_SIZE


def build_frames(tokens: int) -> list[bytes | memoryview]:
    return encode_frames(build_trajectory(tokens))


def payload_bytes(tokens: int) -> int:
    return payload_size(build_frames(tokens))
