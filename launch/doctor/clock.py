"""The clock: events and log-probabilities of several machines are put together by it, and certificates are checked."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from pathlib import Path

from launch.doctor.check_runner import make_host_check
from launch.doctor.finding import CheckName, Finding, failed, ok, warning
from launch.doctor.requirements import HostRequirements

_TIME_ERROR = 5
"""adjtimex(2): nobody keeps this clock right."""
_TIMEX_BYTES = 512
"""More than a ``struct timex`` has, of which nothing is read."""
_SLACK_S = 86_400.0
_SET = "set it by NTP: `timedatectl set-ntp true`, or `chronyc makestep`"


@dataclass(frozen=True, slots=True)
class ClockFacts:
    now: float
    newest_file: float
    """When the newest file of this package was written, which cannot be in the future."""
    synchronised: bool | None
    """NTP keeps it; None where the kernel does not say."""


def look(wants: HostRequirements) -> ClockFacts:
    del wants
    newest = max(path.stat().st_mtime for path in Path(__file__).parent.glob("*.py"))
    return ClockFacts(time.time(), newest, _kept())


def _kept() -> bool | None:
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def judge(facts: ClockFacts, wants: HostRequirements) -> list[Finding]:
    if facts.now < facts.newest_file - _SLACK_S:
        days = (facts.newest_file - facts.now) / 86_400
        return [failed(CheckName.CLOCK, f"it is {days:.0f} days behind the files of this program", _SET)]
    if facts.synchronised is not False:
        return [ok(CheckName.CLOCK, "kept by NTP" if facts.synchronised else "right, as far as can be told here")]
    if wants.machines > 1:
        said = f"nobody keeps it right, and events of {wants.machines} machines are put together by it"
        return [warning(CheckName.CLOCK, said, _SET)]
    return [ok(CheckName.CLOCK, "not kept by NTP, which a run on one machine does not need")]


CLOCK_CHECK = make_host_check((CheckName.CLOCK,), look, judge, deadline_s=5.0, timeout_fix=_SET)
