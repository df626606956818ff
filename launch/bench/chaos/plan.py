"""Who is to be killed, how often and in which order.  Pure: the same seed, the same plan."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from launch.bench.chaos.points import Point, Process
from protocol.errors import UserError

_OF_100 = 100
_EACH_PROCESS, _EACH_POINT = 15, 2
_TRAJECTORIES_EACH = 20
_READY = (Process.WORKER, Process.BUFFER, Process.CONDUCTOR)
"""Those that are back soon: what is left over falls to them.  A learner has to be loaded and to take a step again."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a run has to have come to."""

    kills: int
    by_process: int
    """Least kills of each process."""
    at_point: int
    """Least kills at each point."""
    trajectories: int
    """Least acknowledged."""


@dataclass(frozen=True, slots=True)
class Order:
    process: Process
    point: Point | None
    """None: at a moment of chance."""
    delay_s: float
    """From when it is due."""


def goal_of(kills: int) -> Goal:
    """Of 100 kills: 15 of each process, 2 at each point, 2,000 trajectories; in proportion of any other number, but
    each process and each point once.  Raises UserError for fewer than that takes."""
    least = len(Point) + sum(all(point.victim is not process for point in Point) for process in Process)
    if kills < least:
        raise UserError(f"--kills {kills} is not enough for one at each point and one of each process: {least} or more")
    return Goal(
        kills,
        max(1, kills * _EACH_PROCESS // _OF_100),
        max(1, kills * _EACH_POINT // _OF_100),
        kills * _TRAJECTORIES_EACH,
    )


def make_plan(goal: Goal, seed: int, spread_s: float) -> Sequence[Order]:
    """``goal.kills`` orders, each due up to ``spread_s`` after it could be carried out."""
    dice = random.Random(seed)
    victims: list[tuple[Process, Point | None]] = [(point.victim, point) for point in Point] * goal.at_point
    for process in Process:
        missing = goal.by_process - sum(victim is process for victim, _ in victims)
        victims += [(process, None)] * max(0, missing)
    victims += [(dice.choice(_READY), None) for _ in range(goal.kills - len(victims))]
    dice.shuffle(victims)
    return [Order(process, point, dice.uniform(0, spread_s)) for process, point in victims]
