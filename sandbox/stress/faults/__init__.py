"""The faults that can be injected, by name; each is one small class.

A target session is prepared (a directory, a variable), runs a command or gets one that causes the fault, and is then
probed until it answers or its lease ends. *Resumed*: it answers again, in its directory, and with its variable or after
reporting that its shell is a new one. *Lost, typed*: within the fault's deadline its lease ended with a typed error:
SandboxLost, or SandboxDestroyed if commands in the sandbox caused it. Anything else counts only as injected, and fails
the run. The commands that a target sandbox executed are read back like any other's.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.stress.faults.engine_faults import DaemonKilledFault, DaemonStoppedFault, ShimKilledFault
from sandbox.stress.faults.fault import StressFault
from sandbox.stress.faults.process_faults import ClientKilledFault, ServerKilledFault
from sandbox.stress.faults.sandbox_faults import (
    ForkBombFault,
    FullDiskFault,
    HungExecFault,
    LogBombFault,
    OutOfMemoryFault,
    OutputBombFault,
)

_KINDS: tuple[type[StressFault], ...] = (
    ServerKilledFault, ClientKilledFault, ShimKilledFault, DaemonKilledFault, DaemonStoppedFault,
    OutOfMemoryFault, ForkBombFault, FullDiskFault, OutputBombFault, LogBombFault, HungExecFault,
)  # fmt: skip
FAULTS: Mapping[str, StressFault] = {kind.name: kind() for kind in _KINDS}
