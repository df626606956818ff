"""Takes samples of all processes of a run and its servers, of the sandboxes on their engine, and of the work done."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from launch.bench.soak.curve_file import CurveFile, CurveKey, Sample
from launch.bench.soak.growth import Figure
from launch.bench.soak.process_figures import read_figures, read_part, read_stat
from launch.processes.process_reaper import RunProcess, find_run_processes
from protocol.run_directory.run_tail import RunTail
from sandbox.docker.engine import DockerEngine
from sandbox.docker.inventory import DockerInventory
from sandbox.docker.labels import RUN_LABEL
from sandbox.docker.leaks import inventory_where
from sandbox.docker.retry import DockerEngineError

ALL_PROCESSES, SANDBOXES, STATE, RUN = "all processes", "sandboxes", "servers' state", "run"
_COUNTED_EVENTS: Mapping[str, str] = {
    "learner.step": "steps",
    "trajectory.acknowledged": "trajectories",
    "weights.published": "weight versions",
}


@dataclass(slots=True)
class ProcessSampler:
    """Reads the figures of every process that carries one of the tokens."""

    tokens: Sequence[str]
    _known: set[RunProcess] = field(default_factory=set[RunProcess])

    def sample(self) -> Sample:
        """Blocking."""
        self._known = set[RunProcess]().union(*(find_run_processes(token, self._known) for token in self.tokens))
        children = Counter[int]()
        for process in self._known:
            with suppress(OSError):
                children[read_stat(process.pid).parent] += 1
        values: dict[CurveKey, float] = {CurveKey(ALL_PROCESSES, "", Figure.PROCESSES): len(self._known)}
        for process in self._known:
            with suppress(OSError, ValueError, IndexError):  # it ends meanwhile
                part, name = read_part(process.pid), f"{process.pid}.{process.started}"
                figures = read_figures(process.pid, children[process.pid])
                values |= {CurveKey(part, name, figure): value for figure, value in figures.items()}
        return values


@dataclass(slots=True)
class WorkSampler:
    """Counts what a run has done, by its events, and what its files take."""

    run_dir: Path
    state_folders: Sequence[Path]
    """Folders of servers' state."""
    uses: Callable[[], Mapping[str, int]]
    """Counts of what the servers were used for."""
    _counts: Counter[str] = field(default_factory=Counter[str])
    _tail: RunTail = field(init=False)

    def __post_init__(self) -> None:
        self._tail = RunTail(self.run_dir)

    def sample(self) -> Sample:
        """Blocking."""
        for event in self._tail.iter_events():
            if name := _COUNTED_EVENTS.get(str(event["kind"])):
                self._counts[name] += 1
        counts = dict.fromkeys(_COUNTED_EVENTS.values(), 0) | self._counts | dict(self.uses())
        return {
            CurveKey(RUN, "", Figure.FILES): _folder_bytes(self.run_dir),
            CurveKey(STATE, "", Figure.STATE): sum(map(_folder_bytes, self.state_folders)),
            **{CurveKey(name, "", Figure.WORK): count for name, count in counts.items()},
        }


@dataclass(slots=True)
class SoakSampler:
    """Writes a sample of everything at a constant interval."""

    processes: ProcessSampler
    work: WorkSampler
    engine: DockerEngine
    run_ids: Callable[[], Collection[str]]
    """Labels of the run and of the servers' pools."""
    curves: CurveFile

    async def keep_sampling(self, began: float, interval_s: float) -> None:
        """Sample until cancelled.  ``began`` is a time of :func:`time.monotonic`."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + interval_s
            sample = {**await asyncio.to_thread(self.processes.sample), **await asyncio.to_thread(self.work.sample)}
            with suppress(DockerEngineError):
                found = await self.inventory()
                sample |= {
                    CurveKey(SANDBOXES, "", Figure.CONTAINERS): len(found.containers),
                    CurveKey(SANDBOXES, "", Figure.NETWORKS): len(found.networks),
                    CurveKey(SANDBOXES, "", Figure.VOLUMES): len(found.volumes),
                }
            self.curves.append(time.monotonic() - began, sample)
            await asyncio.sleep(max(0.0, due - clock()))

    async def inventory(self) -> DockerInventory:
        """Return what the run and the servers have on the engine.  Raises DockerEngineError."""
        mine = frozenset(self.run_ids())
        return await inventory_where(self.engine, lambda labels: labels.get(RUN_LABEL) in mine)


def _folder_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # removed meanwhile
            total += path.lstat().st_size
    return total
