"""Plans the kills: which processes, how often and in which order.  Pure: the same seed gives the same plan."""

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
"""Processes that recover quickly, which get the remaining kills; a learner has to load and take a step first."""


@dataclass(frozen=True, slots=True)
class ChaosGoal:
    """The kills and trajectories that a run has to reach."""

    kills: int
    by_process: int
    """Minimum number of random kills by process."""
    at_point: int
    """Minimum number of kills at each kill point, for each process that is killed there."""
    trajectories: int
    """Minimum number of acknowledged trajectories."""


@dataclass(frozen=True, slots=True)
class PlannedKill:
    process: KilledProcess
    point: KillPoint | None
    """Kill point; None for a random moment."""
    delay_s: float
    """Seconds after the order is due."""


def scale_goal(kills: int) -> ChaosGoal:
    """Return the goal for a number of kills.  100 kills mean 15 of each process that is killed at random, 2 of each
    process at each of its kill points, and 2,000 trajectories; other numbers scale, with at least one each.  Raises
    UserError for too few.
    """
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
    """Return ``goal.kills`` orders, each due up to ``spread_s`` after it could be carried out."""
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
