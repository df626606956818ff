"""Looking at many things at once, each for so long and no longer.

Each look has a thread of its own that the process does not wait for at its end: a look that hangs in the kernel (a file
server that is gone, a driver) can be given up, and in no other way.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from launch.doctor.finding import CheckName, Finding, FindingLevel, failed
from launch.doctor.requirements import HostRequirements
from protocol.errors import UserError

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class HostCheck:
    """One look and what follows from it.  Made by :func:`host_check`."""

    names: tuple[CheckName, ...]
    """Of its findings; the first stands for all where there is nothing to judge."""
    find: Callable[[HostRequirements], Sequence[Finding]]
    deadline_s: float
    timeout_fix: str
    """What to do where the look does not come to an end."""
    quick: bool
    """It takes moments, where nothing hangs."""


def make_host_check(
    names: tuple[CheckName, ...],
    look: Callable[[HostRequirements], F],
    judge: Callable[[F, HostRequirements], Sequence[Finding]],
    *,
    deadline_s: float,
    timeout_fix: str,
    quick: bool = True,
) -> HostCheck:
    """``look`` blocks, and may raise OSError, UserError or ValueError, which become findings; ``judge`` is pure."""
    return HostCheck(names, lambda wants: judge(look(wants), wants), deadline_s, timeout_fix, quick)


def run_checks(checks: Sequence[HostCheck], wants: HostRequirements) -> list[Finding]:
    """What all of them find, in their order; done when the last has answered or its time is over."""
    answers: queue.SimpleQueue[tuple[int, list[Finding]]] = queue.SimpleQueue()

    def work(number: int) -> None:
        answers.put((number, _run_check(checks[number], wants)))

    for number in range(len(checks)):
        threading.Thread(target=work, args=(number,), daemon=True, name=f"doctor-{number}").start()
    found, began = dict[int, list[Finding]](), time.monotonic()
    while waiting := [number for number in range(len(checks)) if number not in found]:
        soonest = min(waiting, key=lambda number: checks[number].deadline_s)
        left_s = began + checks[soonest].deadline_s - time.monotonic()
        try:
            number, findings = answers.get(timeout=max(0.0, left_s))
        except queue.Empty:
            found[soonest] = [_timeout_finding(checks[soonest])]
        else:
            found.setdefault(number, findings)
    return [finding for number in range(len(checks)) for finding in found[number]]


def _run_check(check: HostCheck, wants: HostRequirements) -> list[Finding]:
    try:
        return [*check.find(wants)]
    except (OSError, UserError, ValueError) as error:
        return [failed(check.names[0], f"could not be looked at ({type(error).__name__}: {error})", check.timeout_fix)]


def _timeout_finding(check: HostCheck) -> Finding:
    what = ", ".join(check.names)
    said = f"no answer within {check.deadline_s:g} s, so nothing is known of {what}"
    return Finding(check.names[0], FindingLevel.FAILED, said, check.timeout_fix)
