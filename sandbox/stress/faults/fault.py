"""What every fault has, and what becomes of a session that one strikes."""

from __future__ import annotations

import abc
import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import ClassVar

from protocol.errors import LongshoreError
from sandbox.errors import SandboxDestroyed, SandboxLost
from sandbox.stress.checked_session import CheckedSession, UnansweredCommandError
from sandbox.stress.faults.fault_context import STRUCK_FOLDER, STRUCK_VARIABLE_VALUE, FaultContext
from sandbox.stress.report import FaultTally

_PROBE = 'echo "[state:$PWD:$STRESS_STATE]"'
_STATE = re.compile(r"\[state:([^:]*):([^\]]*)\]")
_PROBE_S = 20.0
_PAUSE_S = 0.2


class StressFault(abc.ABC):
    """One kind."""

    name: ClassVar[str]
    deadline_s: ClassVar[float] = 240.0
    """By then a struck session has answered again or ended with a typed error; many times what a quiet host needs."""

    @abc.abstractmethod
    async def inject(self, arena: FaultContext, tally: FaultTally) -> None:
        """Strike some sessions and count what became of each.  Raises LongshoreError when it could not be injected."""


async def observe_fault(
    arena: FaultContext,
    tally: FaultTally,
    talker: CheckedSession,
    strike: Callable[[CheckedSession], Awaitable[object]],
    within_s: float,
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
        report.add_failure(f"a session neither answered nor ended with a typed error within {within_s:g} s")
    except (LongshoreError, OSError) as error:
        report.add_failure(f"a session that was struck could not be judged: {type(error).__name__}: {error}")
    finally:
        await asyncio.shield(talker.sandbox.close())


async def _outcome(
    arena: FaultContext, talker: CheckedSession, strike: Callable[[CheckedSession], Awaitable[object]]
) -> bool:
    """Whether it answers again; False when its lease ended with a typed error."""
    try:
        try:
            await strike(talker)
        except SandboxLost:
            await talker.sandbox.reattach()
        if not await _answers_again(arena, talker):
            return False
        await talker.check_ledger()
    except (SandboxLost, SandboxDestroyed):
        return False
    return True


async def _answers_again(arena: FaultContext, talker: CheckedSession) -> bool:
    """Ask until it answers; False when it is lost, and lost again once its line has been mended.

    Raises SandboxLost, SandboxDestroyed where there is nothing to mend.
    """
    lost = False
    while True:
        try:
            done = await talker.run_checked(_PROBE, _PROBE_S)
        except UnansweredCommandError:
            await asyncio.sleep(_PAUSE_S)
        except SandboxLost:
            if lost:
                return False
            lost = True
            await talker.sandbox.reattach()
        else:
            _check_state(arena, talker, done.output)
            return True


def _check_state(arena: FaultContext, talker: CheckedSession, output: str) -> None:
    """It stands where it stood, and has its variable or has told that the shell is a new one."""
    states = _STATE.findall(output)
    folder, kept = states[-1] if states else ("", "")
    if folder != STRUCK_FOLDER or not (kept == STRUCK_VARIABLE_VALUE or talker.reported_restart):
        told = "told" if talker.reported_restart else "not told"
        arena.bench.report.add_wrong_answer(
            f"after the fault its state is {states}, and the agent was {told} of a new shell"
        )
