"""Runs checks at once, each with a deadline.

Each check runs in a daemon thread, the only way to abandon one that hangs in the kernel (a dead file server, a driver).
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
    """One check of a machine; see :func:`make_host_check`."""

    names: tuple[CheckName, ...]
    """Names of its findings; a timeout is reported under the first."""
    find: Callable[[HostRequirements], Sequence[Finding]]
    deadline_s: float
    timeout_fix: str
    """Fix to suggest if it does not finish in time."""
    quick: bool
    """Whether it takes only moments if nothing hangs."""


def make_host_check(
    names: tuple[CheckName, ...],
    read: Callable[[HostRequirements], F],
    check: Callable[[F, HostRequirements], Sequence[Finding]],
    *,
    deadline_s: float,
    timeout_fix: str,
    quick: bool = True,
) -> HostCheck:
    """Make a check of ``read``, which blocks and may raise OSError, UserError or ValueError, and of ``check``, which is
    pure."""
    return HostCheck(
        names, lambda requirements: check(read(requirements), requirements), deadline_s, timeout_fix, quick
    )


def run_checks(checks: Sequence[HostCheck], requirements: HostRequirements) -> list[Finding]:
    """Return the findings of all checks, in order, when the last has answered or timed out."""
    answers: queue.SimpleQueue[tuple[int, list[Finding]]] = queue.SimpleQueue()

    def work(number: int) -> None:
        answers.put((number, _run_check(checks[number], requirements)))

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


def _run_check(check: HostCheck, requirements: HostRequirements) -> list[Finding]:
    try:
        return [*check.find(requirements)]
    except (OSError, UserError, ValueError) as error:
        return [failed(check.names[0], f"could not be checked ({type(error).__name__}: {error})", check.timeout_fix)]


def _timeout_finding(check: HostCheck) -> Finding:
    what = ", ".join(check.names)
    message = f"no answer within {check.deadline_s:g} s: {what} could not be checked"
    return Finding(check.names[0], FindingLevel.FAILED, message, check.timeout_fix)
