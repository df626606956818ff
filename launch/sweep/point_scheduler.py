"""Points one after the other, or some at a time; one that fails stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Protocol

from launch.sweep.axes import SweepPoint
from launch.sweep.point_results import PointResult, ResultColumn
from launch.sweep.sweep_folder import SweepFolder
from protocol.processes.task_groups import task_group

_POLL_S = 1.0


class PointListener(Protocol):
    """Is told of each point."""

    def point_started(self, point: SweepPoint, log: Path) -> None: ...
    def point_ended(self, point: SweepPoint) -> None: ...


class PointRunner(Protocol):
    """The points of a sweep, whatever is done at each."""

    @property
    def columns(self) -> Sequence[ResultColumn]: ...

    def point_folder(self, point: SweepPoint) -> Path:
        """Its folder."""
        ...

    def check_existing(self) -> None:
        """Raises UserError where what is there of a point is another's."""
        ...

    def preflight(self, points: Sequence[SweepPoint]) -> None:
        """Raises UserError for what can be known to keep ``points`` from being run."""
        ...

    def read_result(self, point: SweepPoint) -> PointResult: ...

    def retry_advice(self, point: SweepPoint) -> str:
        """What to do about one that failed."""
        ...

    async def run_points(
        self, points: Sequence[SweepPoint], parallel: int, folder: SweepFolder, listener: PointListener
    ) -> None:
        """Begin ``points`` or go on with them, to their end."""
        ...


async def run_scheduled(
    points: Sequence[SweepPoint],
    at_once: int,
    ready: Callable[[SweepPoint], bool],
    run: Callable[[SweepPoint], Coroutine[None, None, None]],
) -> None:
    """``run`` each of ``points``, ``at_once`` of them at a time: the first of those that wait which is ``ready``.  That
    one is not is another's doing, who runs, so that this comes to its end."""
    waiting = [*points]

    async def work() -> None:
        while waiting:
            point = next(filter(ready, waiting), None)
            if point is None:
                await asyncio.sleep(_POLL_S)
                continue
            waiting.remove(point)
            await run(point)

    async with task_group() as group:
        for _ in range(min(at_once, len(points))):
            group.create_task(work())
