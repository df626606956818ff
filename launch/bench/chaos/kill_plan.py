"""Who is to be killed, how often and in which order.  Pure: the same seed, the same plan."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from launch.bench.chaos.kill_points import AT_RANDOM, POINT_VICTIMS, KilledProcess, KillPoint
from protocol.errors import UserError

_OF_100 = 100
_EACH_PROCESS, _EACH_POINT = 15, 2
_TRAJECTORIES_EACH = 20
_READY = (KilledProcess.WORKER, KilledProcess.BUFFER, KilledProcess.SCHEDULER)
"""Those that are back soon: what is left over falls to them.  A learner has to be loaded and to take a step again."""


@dataclass(frozen=True, slots=True)
class ChaosGoal:
    """What a run has to have come to."""

    kills: int
    by_process: int
    """Least kills of each process that is killed at moments of chance too."""
    at_point: int
    """Least kills at each point, of each that is killed there."""
    trajectories: int
    """Least acknowledged."""


@dataclass(frozen=True, slots=True)
class PlannedKill:
    process: KilledProcess
    point: KillPoint | None
    """None: at a moment of chance."""
    delay_s: float
    """From when it is due."""


def scale_goal(kills: int) -> ChaosGoal:
    """Of 100 kills: 15 of each process that is killed at random, 2 of each that is killed at a point there, 2,000
    trajectories; in proportion of any other number, but each of them once.  Raises UserError for fewer than that
    takes."""
    placed = {victim for _, victim in POINT_VICTIMS}
    least = len(POINT_VICTIMS) + sum(process not in placed for process in AT_RANDOM)
    if kills < least:
        raise UserError(f"--kills {kills} is not enough for one at each point and one of each process: {least} or more")
    return ChaosGoal(
        kills,
        max(1, kills * _EACH_PROCESS // _OF_100),
        max(1, kills * _EACH_POINT // _OF_100),
        kills * _TRAJECTORIES_EACH,
    )


def plan_kills(goal: ChaosGoal, seed: int, spread_s: float) -> Sequence[PlannedKill]:
    """``goal.kills`` orders, each due up to ``spread_s`` after it could be carried out."""
    dice = random.Random(seed)
    victims: list[tuple[KilledProcess, KillPoint | None]] = [
        (victim, point) for point, victim in POINT_VICTIMS
    ] * goal.at_point
    for process in AT_RANDOM:
        missing = goal.by_process - sum(victim is process for victim, _ in victims)
        victims += [(process, None)] * max(0, missing)
    victims += [(dice.choice(_READY), None) for _ in range(goal.kills - len(victims))]
    dice.shuffle(victims)
    return [PlannedKill(process, point, dice.uniform(0, spread_s)) for process, point in victims]
