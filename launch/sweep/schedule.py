"""Points one after the other, or some at a time; one that fails stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Protocol

from launch.sweep.axes import Point
from launch.sweep.figures import Column, Outcome
from launch.sweep.folder import SweepFolder
from protocol.structured import task_group

_POLL_S = 1.0


class Listener(Protocol):
    """Is told of each point."""

    def begun(self, point: Point, log: Path) -> None: ...
    def ended(self, point: Point) -> None: ...


class Carried(Protocol):
    """The points of a sweep, whatever is done at each."""

    @property
    def columns(self) -> Sequence[Column]: ...

    def place(self, point: Point) -> Path:
        """Its folder."""
        ...

    def check(self) -> None:
        """Raises UserError where what is there of a point is another's."""
        ...

    def preflight(self, points: Sequence[Point]) -> None:
        """Raises UserError for what can be known to keep ``points`` from being run."""
        ...

    def outcome(self, point: Point) -> Outcome: ...

    def again(self, point: Point) -> str:
        """What to do about one that failed."""
        ...

    async def carry_out(self, points: Sequence[Point], at_once: int, folder: SweepFolder, heard: Listener) -> None:
        """Begin ``points`` or go on with them, to their end."""
        ...


async def scheduled(
    points: Sequence[Point],
    at_once: int,
    ready: Callable[[Point], bool],
    run: Callable[[Point], Coroutine[None, None, None]],
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
