"""Runs the run's command in a separate process (:mod:`.driver`), so that its driver can be killed too, and resumes
the run after each of its deaths.
"""

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
"""Seconds within which the process reaper ends the processes of a killed driver."""


@dataclass(slots=True)
class RunSupervisor:
    """Keeps one run going."""

    folder: Path
    """Folder of the list of kills."""
    words: Sequence[str]
    """Words of the command line for a new and for a resumed run."""
    run_id: str
    program: Sequence[str] = (sys.executable, "-m", "launch.bench.chaos.driver")
    token: str = ""
    """Token that every process of the current driver carries."""

    async def keep_running(self) -> None:
        """Run until cancelled, which interrupts the run and waits for its end.  Raises InfraError if it ends in any
        other way than by a kill.
        """
        how = "--run-id"
        while True:
            self.token = secrets.token_hex(16)
            pid, code = await run_command(*self.program, self.token, *self.words, how, self.run_id)
            if not any((kill.process, kill.pid) == (KilledProcess.DRIVER, pid) for kill in read_kills(self.folder)):
                raise InfraError(f"the run ended by itself (exit code {code}) before all was killed that was to be")
            await self._await_process_cleanup()
            how = "--resume"

    async def _await_process_cleanup(self) -> None:
        """Wait until no process of the dead driver is left."""
        try:
            async with asyncio.timeout(_GONE_S):
                while await asyncio.to_thread(find_run_processes, self.token):  # noqa: ASYNC110  no event tells of their end
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise InfraError(f"processes of a killed driver are alive {_GONE_S:g} s after it") from None
