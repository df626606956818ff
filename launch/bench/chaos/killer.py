"""Carries out the kill plan: waits until an order is due and its victim is busy, kills it, and continues when it is
back.

Orders are spread over the goal's trajectories.  A kill counts only if something was in flight, according to the
workers' event files at that moment; otherwise it is ordered again.  Kills of different processes overlap; a process is
killed again only after it has recovered, a learner or driver after a step that is new: a run gives up on a learner that
dies again and again on the same steps.
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

from launch.bench.chaos.kill_plan import ChaosGoal, PlannedKill
from launch.bench.chaos.kill_points import (
    Kill,
    KilledProcess,
    KillPoint,
    arm_kill_point,
    disarm_kill_point,
    read_kills,
    write_kill,
)
from launch.bench.chaos.run_observer import RunObserver, count_in_flight_at_kills
from launch.bench.chaos.run_supervisor import RunSupervisor
from launch.processes.process_reaper import find_run_processes
from protocol.errors import InfraError

_LOOK_S = 0.25
_PATIENCE_S = 600.0
"""Seconds to wait for a busy victim, for a kill point to be reached, or for another acknowledged trajectory."""


@dataclass(slots=True)
class Killer:
    folder: Path
    """Folder of armed points and of the list of kills."""
    observer: RunObserver
    supervisor: RunSupervisor
    """The supervised run, whose processes are the only ones that are killed."""
    ray_class_names: Mapping[KilledProcess, str]
    """Name of each process in Ray."""
    goal: ChaosGoal
    say: Callable[[str], None]
    _killed: set[int] = field(default_factory=set[int])
    _steps_at: dict[KilledProcess, int] = field(default_factory=dict[KilledProcess, int])
    """Highest step at the last kill of a process that recovers slowly."""

    async def run(self, plan: Sequence[PlannedKill]) -> None:
        """Return when every order has a counted kill and the goal's trajectories are acknowledged.  Raises InfraError
        if the run stalls.
        """
        await self._wait_until(lambda: self.observer.training and self.observer.steps > 0, "the first step")
        waiting, counted = deque(plan), 0
        while waiting:
            order = waiting.popleft()
            await self._await_acknowledged(self.goal.trajectories * counted // len(plan))
            await asyncio.sleep(order.delay_s)
            kill = await self._execute(order)
            await asyncio.to_thread(self.observer.read_new_events)
            self._note_death(kill)
            busy = count_in_flight_at_kills(self.observer.events, read_kills(self.folder))[-1]
            counted += busy > 0
            if not busy:
                waiting.append(order)
            where = f"at {kill.point}" if kill.point else "at random"
            self.say(
                f"{counted} of {len(plan)} killed: {kill.process} {where}, pid {kill.pid}, with {busy} in flight; "
                f"{self.observer.acknowledged} acknowledged, step {self.observer.steps}"
            )
        await self._await_acknowledged(self.goal.trajectories)
        await self._await_recovery()

    async def _execute(self, order: PlannedKill) -> Kill:
        if (steps := self._steps_at.get(order.process)) is not None:
            await self._wait_until(
                lambda: self.observer.steps > steps, f"a new step after the last death of a {order.process}"
            )
        if order.point is not None:
            await self._wait_until(lambda: self.observer.in_flight.count > 0, "an episode in flight")
            return await self._kill_at(order.point, order.process)
        while True:
            pid = await self._await_busy_process(order.process)
            kill = Kill(time.time(), order.process, pid, None)
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(pid, signal.SIGKILL)
                write_kill(self.folder, kill)
                return kill

    async def _kill_at(self, point: KillPoint, victim: KilledProcess) -> Kill:
        before = len(read_kills(self.folder))
        arm_kill_point(self.folder, point, victim)
        try:
            await self._wait_until(lambda: len(read_kills(self.folder)) > before, f"a {victim} at {point}")
        finally:
            disarm_kill_point(self.folder, point, victim)
        return read_kills(self.folder)[-1]

    def _note_death(self, kill: Kill) -> None:
        self._killed.add(kill.pid)
        self.observer.in_flight.apply_kill(kill)
        if kill.process in (KilledProcess.LEARNER, KilledProcess.DRIVER):
            self._steps_at[kill.process] = self.observer.steps

    async def _await_busy_process(self, process: KilledProcess) -> int:
        """Wait for a live process with something in flight; for a worker, in that very process."""
        found: list[int] = []

        def look() -> bool:
            busy = self.observer.in_flight
            found[:] = [
                pid
                for pid in self._live_pids(process)
                if process is not KilledProcess.WORKER or busy.count_in_process(pid)
            ]
            return bool(found) and busy.count > 0

        await self._wait_until(look, f"a {process} at work")
        return found[0]

    def _live_pids(self, process: KilledProcess) -> list[int]:
        """Return the live processes of this kind that were not killed yet."""
        name = f"ray::{self.ray_class_names[process]}".encode()
        found: list[int] = []
        living = {pid for pid, _ in find_run_processes(self.supervisor.token)}
        self._killed &= living  # the system gives a dead one's number to another process
        for pid in living:
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
                if title.startswith(name) and pid not in self._killed:
                    found.append(pid)
        return found

    async def _await_acknowledged(self, number: int) -> None:
        while self.observer.acknowledged < number:
            seen = self.observer.acknowledged
            await self._wait_until(
                lambda seen=seen: self.observer.acknowledged > seen, "another acknowledged trajectory"
            )

    async def _await_recovery(self) -> None:
        """Wait until all processes are back and a new step was taken after the last kill."""
        steps = self.observer.steps
        await self._wait_until(lambda: self.observer.steps > steps, "a new step after the last death")

    async def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    await asyncio.to_thread(self.observer.read_new_events)
                    if holds():
                        return
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise InfraError(
                f"not within {_PATIENCE_S:g} s: {what} "
                f"({self.observer.acknowledged} acknowledged, step {self.observer.steps})"
            ) from None
