"""Shaping of rewards before advantages are computed.  Pure."""

from __future__ import annotations

from learner.losses.settings import RewardShapingSettings


def shape_reward(reward: float, sampled: int, shaping: RewardShapingSettings) -> float:
    """Return ``reward`` after length penalty, bias, scale and clip, in this order (AReaL, trainer/ppo/actor.py)::

        r + min(−(L − (overlong_tokens − overlong_buffer)) ÷ overlong_buffer · overlong_factor, 0)
        clip((r + bias) · scale, −clip, clip)

    The penalty is DAPO's (arXiv 2503.14476, eq. 13) without its floor, as verl and AReaL have it; L is ``sampled``, the
    trajectory's sampled tokens, without tool output."""
    if shaping.overlong_tokens:
        over = sampled - (shaping.overlong_tokens - shaping.overlong_buffer)
        reward += min(-over / shaping.overlong_buffer * shaping.overlong_factor, 0.0)
    reward = (reward + shaping.bias) * shaping.scale
    return reward if shaping.clip is None else min(max(reward, -shaping.clip), shaping.clip)
