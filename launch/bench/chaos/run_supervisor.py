"""The run's command in a process of its own (:mod:`.driver`), so that its driver too may be killed: begun anew and,
after each death, gone on with as a person would, ``--resume``."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.bench.chaos.kill_points import KilledProcess, read_kills
from launch.processes.child_process import run_command
from launch.processes.process_reaper import find_run_processes
from protocol.errors import InfraError

_LOOK_S = 0.5
_GONE_S = 120.0
"""What a killed driver had started is ended by its guardian within that."""


@dataclass(slots=True)
class RunSupervisor:
    """Keeps one run going."""

    folder: Path
    """Where kills are written down."""
    words: Sequence[str]
    """Of the command line, whether the run begins or goes on."""
    run_id: str
    program: Sequence[str] = (sys.executable, "-m", "launch.bench.chaos.driver")
    token: str = ""
    """Which every process carries that the present driver has started."""

    async def keep_running(self) -> None:
        """Run it until cancelled, which interrupts it and waits for its end.  Raises InfraError where it ends in any
        other way than by a kill that was written down."""
        how = "--run-id"
        while True:
            self.token = secrets.token_hex(16)
            pid, code = await run_command(*self.program, self.token, *self.words, how, self.run_id)
            if not any((kill.process, kill.pid) == (KilledProcess.DRIVER, pid) for kill in read_kills(self.folder)):
                raise InfraError(f"the run ended by itself (exit code {code}) before all was killed that was to be")
            await self._await_process_cleanup()
            how = "--resume"

    async def _await_process_cleanup(self) -> None:
        """Nothing is left of what the dead driver had started."""
        try:
            async with asyncio.timeout(_GONE_S):
                while await asyncio.to_thread(find_run_processes, self.token):  # noqa: ASYNC110  no event tells of their end
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise InfraError(f"processes of a killed driver are alive {_GONE_S:g} s after it") from None
