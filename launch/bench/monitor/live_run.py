"""Watches a real run: measures delays and losses of events, and the monitor's use of the processor."""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from launch.bench.coin_tasks import write_coin_tasks
from launch.bench.monitor.event_client import ReconnectingClient, count_written_events
from launch.bench.monitor.monitor_process import serve_monitor
from launch.bench.server_process import ServerProcess, read_cpu_s
from launch.bench.tiny_recipes import build_tiny_model, tiny_overrides
from launch.config import load_recipe
from launch.processes.background_tasks import background_services
from launch.processes.child_process import run_command
from launch.processes.process_reaper import ProcessReaper, RunProcess, find_run_processes
from launch.run.preflight import run_preflight_checks
from protocol.errors import InfraError
from protocol.run_directory.layout import CONFIG_FILE, SUMMARY_FILE

RECIPE, RUN = "demo", "watched"
_LOOK_S = 1.0
_START_S, _DRAIN_S = 300.0, 15.0


@dataclass(frozen=True, slots=True)
class LiveMeasurement:
    p50_ms: float
    p95_ms: float
    missed: int
    """Number of events that the client never received."""
    repeated: int
    """Number of events that the client received more than once."""
    events: int
    cuts: int
    monitor_cpu_s: float
    run_cpu_s: float

    @property
    def slowdown(self) -> float:
        return self.monitor_cpu_s / self.run_cpu_s


@dataclass(slots=True)
class _RunCpu:
    """Processor seconds of a run's processes without sandboxes; an ended process counts as last seen."""

    token: str
    excluded: frozenset[int]
    """Processes that do not belong to the run."""
    _first: dict[RunProcess, float] = field(default_factory=dict[RunProcess, float])
    _last: dict[RunProcess, float] = field(default_factory=dict[RunProcess, float])

    async def keep_sampling(self) -> None:
        while True:
            await asyncio.to_thread(self.sample)
            await asyncio.sleep(_LOOK_S)

    def sample(self) -> None:
        fresh = not self._first
        for process in find_run_processes(self.token, self._last.keys()):
            with suppress(OSError):
                if process.pid not in self.excluded:
                    used = read_cpu_s(process.pid)
                    self._first.setdefault(process, used if fresh else 0.0)
                    self._last[process] = used

    @property
    def used_s(self) -> float:
        """Return the processor seconds since the first look."""
        return sum(used - self._first[process] for process, used in self._last.items())


def run_arguments(output: Path, steps: int, run_id: str = RUN, others: Sequence[str] = ()) -> Sequence[str]:
    """Return the arguments of ``launch.cluster``, ``others`` being more overrides.  Raises UserError if this machine
    cannot run it."""
    values = (
        *tiny_overrides(RECIPE),
        "warm_start.enabled=false",
        "rollout.groups_per_step=4",
        "data.kind=terminal_bench",
        f"data.path='{output / 'tasks'}'",
        f"model.path='{output / 'model'}'",
        f"run.dir='{output / 'runs'}'",
        f"run.steps={steps}",
        "stop.after_trajectories=0",
        *others,
    )
    run_preflight_checks(load_recipe(RECIPE, values))
    return [RECIPE, "--run-id", run_id, *(word for value in values for word in ("--set", value))]


async def measure_live(output: Path, steps: int, cuts: int) -> LiveMeasurement:
    """Run and watch.  Raises UserError if this machine cannot run it, InfraError if the run does not finish."""
    build_tiny_model(output / "model")
    write_coin_tasks(output / "tasks")
    arguments, run_dir = run_arguments(output, steps), output / "runs" / RUN
    token = secrets.token_hex(16)
    with ProcessReaper(token, Path(tempfile.mkdtemp(prefix="ls-"))):
        async with asyncio.TaskGroup() as group:
            run = group.create_task(run_command(sys.executable, "-m", "launch.cluster", *arguments))
            await _await_start(run_dir, run)
            async with serve_monitor(run_dir) as server:
                found = await _watch_run(run_dir, server, token, run, cuts)
    if not (run_dir / SUMMARY_FILE).exists():
        raise InfraError(f"the run {run_dir} ended early: its last output is above")
    return found


async def _await_start(run_dir: Path, run: asyncio.Task[object]) -> None:
    deadline = time.monotonic() + _START_S
    while not (run_dir / CONFIG_FILE).exists():
        if run.done() or time.monotonic() > deadline:
            raise InfraError(f"the run {run_dir} did not start: its output is above")
        await asyncio.sleep(0.1)


async def _watch_run(
    run_dir: Path, server: ServerProcess, token: str, run: asyncio.Task[object], cuts: int
) -> LiveMeasurement:
    watcher = ReconnectingClient(server.url, cuts)
    cpu = _RunCpu(token, frozenset({server.pid}))
    async with background_services(watcher.watch()):
        await watcher.await_events(1)
        began = server.cpu_s  # what starting it takes is over; reading an event is not
        async with background_services(cpu.keep_sampling()):
            await asyncio.shield(run)
        used = server.cpu_s - began
        expected = count_written_events(run_dir)
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await watcher.await_events(expected.total())
    late = quantiles(watcher.latencies_ms, n=20)
    return LiveMeasurement(
        p50_ms=late[9],
        p95_ms=late[18],
        missed=(expected - watcher.seen).total(),
        repeated=(watcher.seen - expected).total(),
        events=expected.total(),
        cuts=watcher.cut,
        monitor_cpu_s=used,
        run_cpu_s=cpu.used_s,
    )
