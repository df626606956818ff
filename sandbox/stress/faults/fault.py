"""What every fault has, and what becomes of a session that one strikes."""

from __future__ import annotations

import abc
import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import ClassVar

from protocol.errors import LongshoreError
from sandbox.errors import SandboxDestroyed, SandboxLost
from sandbox.stress.faults.arena import FOLDER, KEPT, Arena
from sandbox.stress.report import Tally
from sandbox.stress.talk import Talker, Unanswered

_PROBE = 'echo "[state:$PWD:$STRESS_STATE]"'
_STATE = re.compile(r"\[state:([^:]*):([^\]]*)\]")
_PROBE_S = 20.0
_PAUSE_S = 0.2


class Fault(abc.ABC):
    """One kind."""

    name: ClassVar[str]
    within_s: ClassVar[float] = 240.0
    """By then a struck session has answered again or ended with a typed error; many times what a quiet host needs."""

    @abc.abstractmethod
    async def inject(self, arena: Arena, tally: Tally) -> None:
        """Strike some sessions and count what became of each.  Raises LongshoreError when it could not be injected."""


async def witness(
    arena: Arena, tally: Tally, talker: Talker, strike: Callable[[Talker], Awaitable[object]], within_s: float
) -> None:
    """Let ``strike`` happen to a prepared session, count how it ends, and close it.

    ``strike`` may raise what the session raises.
    """
    report = arena.bench.report
    tally.injected += 1
    try:
        async with asyncio.timeout(within_s):
            resumed = await _outcome(arena, talker, strike)
        if resumed:
            tally.resumed += 1
        else:
            tally.lost_typed += 1
    except TimeoutError:
        report.failed(f"a session neither answered nor ended with a typed error within {within_s:g} s")
    except (LongshoreError, OSError) as error:
        report.failed(f"a session that was struck could not be judged: {type(error).__name__}: {error}")
    finally:
        await asyncio.shield(talker.seat.close())


async def _outcome(arena: Arena, talker: Talker, strike: Callable[[Talker], Awaitable[object]]) -> bool:
    """Whether it answers again; False when its lease ended with a typed error."""
    try:
        try:
            await strike(talker)
        except SandboxLost:
            await talker.seat.again()
        if not await _answers_again(arena, talker):
            return False
        await talker.check_ledger()
    except (SandboxLost, SandboxDestroyed):
        return False
    return True


async def _answers_again(arena: Arena, talker: Talker) -> bool:
    """Ask until it answers; False when it is lost, and lost again once its line has been mended.

    Raises SandboxLost, SandboxDestroyed where there is nothing to mend.
    """
    lost = False
    while True:
        try:
            done = await talker.ask(_PROBE, _PROBE_S)
        except Unanswered:
            await asyncio.sleep(_PAUSE_S)
        except SandboxLost:
            if lost:
                return False
            lost = True
            await talker.seat.again()
        else:
            _check_state(arena, talker, done.output)
            return True


def _check_state(arena: Arena, talker: Talker, output: str) -> None:
    """It stands where it stood, and has its variable or has told that the shell is a new one."""
    states = _STATE.findall(output)
    folder, kept = states[-1] if states else ("", "")
    if folder != FOLDER or not (kept == KEPT or talker.told_of_restart):
        told = "told" if talker.told_of_restart else "not told"
        arena.bench.report.wrong(f"after the fault its state is {states}, and the agent was {told} of a new shell")
