"""The processes, ports, memory and containers of a running command, and a wait for their release."""

from __future__ import annotations

import os
import signal

from launch.processes.process_reaper import find_run_processes
from tests.support.runs.cluster_runs import MiniRun, all_listening_ports, eventually, listening_ports, shared_memory

DEADLINE_S = 40.0
"""sandbox.heartbeat_timeout_s of the mini recipe: containers that nobody looks after end by themselves."""


class RunResources:
    """The resources that a run has at construction; :meth:`wait_until_released` waits for their release."""

    def __init__(self, run: MiniRun) -> None:
        self._run, self._token = run, run.run_token()
        self._processes = find_run_processes(self._token)
        pids = [run.process.pid, *(process.pid for process in self._processes)]
        self._ports, self._memory = listening_ports(pids), shared_memory(pids)
        assert len(pids) > 5
        assert self._ports

    def wait_until_released(self) -> None:
        eventually("the end of every process", lambda: not find_run_processes(self._token, self._processes), 60)
        eventually("free shared memory", lambda: not [path for path in self._memory if path.exists()], 60)
        eventually("free ports", lambda: not self._ports & all_listening_ports(), 60)
        eventually("the end of every container", lambda: not self._run.list_containers(), DEADLINE_S + 120)


def kill_command(run: MiniRun) -> None:
    """Kill a run's command, and wait until nothing of it is left."""
    resources = RunResources(run)
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    resources.wait_until_released()
