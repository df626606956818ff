"""Checks the clock, by which events of several machines are ordered and certificates are validated."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from pathlib import Path

from launch.doctor.check_runner import make_host_check
from launch.doctor.finding import CheckName, Finding, failed, ok, warning
from launch.doctor.requirements import HostRequirements

_TIME_ERROR = 5
"""Result of adjtimex(2) for a clock that is not synchronised."""
_TIMEX_BYTES = 512
"""Upper bound of the size of ``struct timex``, which is not read."""
_SLACK_S = 86_400.0
_SET = "synchronise it by NTP: `timedatectl set-ntp true`, or `chronyc makestep`"


@dataclass(frozen=True, slots=True)
class ClockFacts:
    now: float
    newest_file: float
    """Modification time of the newest file of this package, which cannot be in the future."""
    synchronised: bool | None
    """Whether NTP synchronises it; None if the kernel does not say."""


def read_clock_facts(requirements: HostRequirements) -> ClockFacts:
    del requirements
    newest = max(path.stat().st_mtime for path in Path(__file__).parent.glob("*.py"))
    return ClockFacts(time.time(), newest, _is_synchronised())


def _is_synchronised() -> bool | None:
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def check_clock(facts: ClockFacts, requirements: HostRequirements) -> list[Finding]:
    if facts.now < facts.newest_file - _SLACK_S:
        days = (facts.newest_file - facts.now) / 86_400
        return [failed(CheckName.CLOCK, f"it is {days:.0f} days behind the files of this program", _SET)]
    if facts.synchronised is not False:
        return [
            ok(
                CheckName.CLOCK,
                "synchronised by NTP" if facts.synchronised else "plausible; whether NTP runs is unknown",
            )
        ]
    if requirements.machines > 1:
        message = f"it is not synchronised, and events of {requirements.machines} machines are ordered by it"
        return [warning(CheckName.CLOCK, message, _SET)]
    return [ok(CheckName.CLOCK, "not synchronised by NTP, which a run on one machine does not need")]


CLOCK_CHECK = make_host_check((CheckName.CLOCK,), read_clock_facts, check_clock, deadline_s=5.0, timeout_fix=_SET)
