"""The base class of faults, and how a target session is observed."""

from __future__ import annotations

import abc
import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import ClassVar

from protocol.errors import LongshoreError
from sandbox.errors import SandboxDestroyed, SandboxLost
from sandbox.stress.checked_session import CheckedSession, UnansweredCommandError
from sandbox.stress.faults.fault_context import TARGET_FOLDER, TARGET_VARIABLE_VALUE, FaultContext
from sandbox.stress.report import FaultTally

_PROBE = 'echo "[state:$PWD:$STRESS_STATE]"'
_STATE = re.compile(r"\[state:([^:\[]*):([^\]\[]*)\]")
_PROBE_S = 20.0
_PAUSE_S = 0.2


class StressFault(abc.ABC):
    """One kind of fault."""

    name: ClassVar[str]
    deadline_s: ClassVar[float] = 240.0
    """Seconds within which a target session must answer or end with a typed error; many times what a quiet host
    needs."""

    @abc.abstractmethod
    async def inject(self, context: FaultContext, tally: FaultTally) -> None:
        """Inject the fault into some sessions and count their outcomes. Raises LongshoreError if that is impossible."""


async def observe_fault(
    context: FaultContext,
    tally: FaultTally,
    checked: CheckedSession,
    inject: Callable[[CheckedSession], Awaitable[object]],
    within_s: float,
) -> None:
    """Run ``inject`` on a prepared session, count how it ends, and close it.

    ``inject`` may raise what the session raises.
    """
    report = context.stress.report
    tally.injected += 1
    try:
        async with asyncio.timeout(within_s):
            resumed = await _outcome(context, checked, inject)
        if resumed:
            tally.resumed += 1
        else:
            tally.lost_typed += 1
    except TimeoutError:
        report.add_failure(f"a session neither answered nor ended with a typed error within {within_s:g} s")
    except (LongshoreError, OSError) as error:
        report.add_failure(f"a target session could not be checked: {type(error).__name__}: {error}")
    finally:
        await asyncio.shield(checked.sandbox.close())


async def _outcome(
    context: FaultContext, checked: CheckedSession, inject: Callable[[CheckedSession], Awaitable[object]]
) -> bool:
    """Return whether it answers again; False when its lease ended with a typed error."""
    try:
        try:
            await inject(checked)
        except SandboxLost:
            await checked.sandbox.reattach()
        if not await _answers_again(context, checked):
            return False
        await checked.check_ledger()
    except (SandboxLost, SandboxDestroyed):
        return False
    return True


async def _answers_again(context: FaultContext, checked: CheckedSession) -> bool:
    """Probe until it answers; return False if it is lost, and lost again after reattaching.

    Raises SandboxLost, SandboxDestroyed if it cannot be reattached.
    """
    lost = False
    while True:
        try:
            done = await checked.run_checked(_PROBE, _PROBE_S)
        except UnansweredCommandError:
            await asyncio.sleep(_PAUSE_S)
        except SandboxLost:
            if lost:
                return False
            lost = True
            await checked.sandbox.reattach()
        else:
            _check_state(context, checked, done.output)
            return True


def _check_state(context: FaultContext, checked: CheckedSession, output: str) -> None:
    """Check that it is in its directory, and has its variable or has reported that the shell is a new one."""
    states = _STATE.findall(output)
    folder, kept = states[-1] if states else ("", "")
    if folder != TARGET_FOLDER or not (kept == TARGET_VARIABLE_VALUE or checked.reported_restart):
        notified = "notified" if checked.reported_restart else "not notified"
        context.stress.report.add_wrong_answer(
            f"after the fault its state is {states}, and the agent was {notified} of a new shell"
        )
