"""Carries the plan out: waits until an order is due and its victim at work, kills it, and goes on while it comes back.

Orders are spread over the trajectories of the goal.  A kill counts only where something was in flight, by the workers'
own event files at the moment that stands beside it; one that does not count is ordered again.  Deaths of different
processes overlap; of one process the next waits until the last has been got over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.bench.chaos.command import Command
from launch.bench.chaos.plan import Goal, Order
from launch.bench.chaos.points import Kill, Point, Process, arm, disarm, read_kills, write_kill
from launch.bench.chaos.witness import Witness, in_flight_at
from launch.guardian import processes
from protocol.errors import InfraError

_LOOK_S = 0.25
_PATIENCE_S = 600.0
"""For a victim to be at work, a point to be reached, or another trajectory to be acknowledged."""


@dataclass(slots=True)
class Killer:
    folder: Path
    """Where points are armed and kills written down."""
    witness: Witness
    command: Command
    """The run; nothing but its own processes is ever killed."""
    classes: Mapping[Process, str]
    """What Ray calls them."""
    goal: Goal
    say: Callable[[str], None]
    _killed: set[int] = field(default_factory=set[int])
    _steps_at: dict[Process, int] = field(default_factory=dict[Process, int])
    """Steps that had been taken when one was killed last that takes a while to be back."""

    async def run(self, plan: Sequence[Order]) -> None:
        """Return when every order has cost a process that counts, and the goal's trajectories are acknowledged.  Raises
        InfraError where the run stands still."""
        await self._until(lambda: self.witness.training and self.witness.steps > 0, "the first step")
        waiting, counted = deque(plan), 0
        while waiting:
            order = waiting.popleft()
            await self._acknowledged(self.goal.trajectories * counted // len(plan))
            await asyncio.sleep(order.delay_s)
            kill = await self._carry_out(order)
            await asyncio.to_thread(self.witness.look)
            self._mourn(kill)
            busy = in_flight_at(self.witness.events, read_kills(self.folder))[-1]
            counted += busy > 0
            if not busy:
                waiting.append(order)
            where = f"at {kill.point}" if kill.point else "at random"
            self.say(
                f"{counted} of {len(plan)} killed: {kill.process} {where}, pid {kill.pid}, with {busy} in flight; "
                f"{self.witness.acked} acknowledged, {self.witness.steps} steps"
            )
        await self._acknowledged(self.goal.trajectories)
        await self._recovered()

    async def _carry_out(self, order: Order) -> Kill:
        if (steps := self._steps_at.get(order.process)) is not None:
            await self._until(lambda: self.witness.steps > steps, f"a step after the last death of a {order.process}")
        if order.point is not None:
            return await self._kill_at(order.point, order.process)
        while True:
            pid = await self._victim(order.process)
            kill = Kill(time.time(), order.process, pid, None)
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(pid, signal.SIGKILL)
                write_kill(self.folder, kill)
                return kill

    async def _kill_at(self, point: Point, victim: Process) -> Kill:
        before = len(read_kills(self.folder))
        arm(self.folder, point, victim)
        try:
            await self._until(lambda: len(read_kills(self.folder)) > before, f"a {victim} at {point}")
        finally:
            disarm(self.folder, point, victim)
        return read_kills(self.folder)[-1]

    def _mourn(self, kill: Kill) -> None:
        self._killed.add(kill.pid)
        self.witness.in_flight.end(kill)
        if kill.process in (Process.LEARNER, Process.DRIVER):
            self._steps_at[kill.process] = self.witness.steps

    async def _victim(self, process: Process) -> int:
        """A live process, with something in flight: of a worker, in that very process."""
        found: list[int] = []

        def look() -> bool:
            busy = self.witness.in_flight
            found[:] = [pid for pid in self._alive(process) if process is not Process.WORKER or busy.of(pid)]
            return bool(found) and busy.count > 0

        await self._until(look, f"a {process} at work")
        return found[0]

    def _alive(self, process: Process) -> list[int]:
        """The run's processes of this kind that were not killed yet."""
        name = f"ray::{self.classes[process]}".encode()
        found: list[int] = []
        for pid, _ in processes(self.command.token):
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
                if title.startswith(name) and pid not in self._killed:
                    found.append(pid)
        return found

    async def _acknowledged(self, number: int) -> None:
        while self.witness.acked < number:
            seen = self.witness.acked
            await self._until(lambda seen=seen: self.witness.acked > seen, "another acknowledged trajectory")

    async def _recovered(self) -> None:
        """All processes are back and a step was taken after the last death."""
        steps = self.witness.steps
        await self._until(lambda: self.witness.steps > steps, "a step after the last death")

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    await asyncio.to_thread(self.witness.look)
                    if holds():
                        return
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise InfraError(
                f"not within {_PATIENCE_S:g} s: {what} ({self.witness.acked} acknowledged, {self.witness.steps} steps)"
            ) from None
