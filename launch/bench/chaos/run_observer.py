"""Follows a run's event files, and counts what was in flight when a process was killed.

In flight are episodes that started and whose trajectory is neither acknowledged nor given back, in a live worker of a
live driver.  Each of them holds a rollout request.  A killed worker writes no event, so the list of kills is used too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.bench.chaos.kill_points import Kill, KilledProcess
from protocol.run_directory.json_fields import Event
from protocol.run_directory.run_tail import RunTail


def trajectory_of_event(event: Event) -> str:
    """Return the trajectory of an event, without its attempt."""
    return str(event["trajectory"]).partition("-a")[0]


@dataclass(slots=True)
class EpisodesInFlight:
    """Tracks episodes in flight; events are applied in order of time."""

    _processes: dict[str, int] = field(default_factory=dict[str, int])
    """Worker → process that started last."""
    _running: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    """Process → trajectories in flight; none after it has ended."""

    def apply_event(self, event: Event) -> None:
        writer = str(event["writer"])
        mine = self._running.get(self._processes.get(writer, -1))
        match event["kind"]:
            case "run.started":
                self._running.clear()
            case "worker.started":
                self._running.pop(self._processes.get(writer, -1), None)
                self._processes[writer] = int(str(event["incarnation"]).partition(".")[0])
                self._running[self._processes[writer]] = set()
            case "episode.started" if mine is not None:
                mine.add(trajectory_of_event(event))
            case "trajectory.acknowledged" | "trajectory.rejected" if mine is not None:
                mine.discard(trajectory_of_event(event))
            case "episode.failed":
                for names in self._running.values():
                    names.discard(trajectory_of_event(event))
            case _:
                pass

    def apply_kill(self, kill: Kill) -> None:
        """Apply a kill: everything in that process is gone, and everything at all if it was the driver."""
        if kill.process is KilledProcess.DRIVER:
            self._running.clear()
        self._running.pop(kill.pid, None)

    @property
    def count(self) -> int:
        return sum(map(len, self._running.values()))

    def count_in_process(self, process: int) -> int:
        return len(self._running.get(process, ()))


def count_in_flight_at_kills(events: Iterable[Event], kills: Sequence[Kill]) -> list[int]:
    """Return the number of episodes in flight at each of ``kills``, without those that earlier kills ended."""
    ordered = sorted(events, key=_time)
    state, counts, at = EpisodesInFlight(), dict[int, int](), 0
    for index in sorted(range(len(kills)), key=lambda index: kills[index].t):
        while at < len(ordered) and _time(ordered[at]) <= kills[index].t:
            state.apply_event(ordered[at])
            at += 1
        counts[index] = state.count
        state.apply_kill(kills[index])
    return [counts[index] for index in range(len(kills))]


def _time(event: Event) -> float:
    return float(str(event["t"]))


@dataclass(slots=True)
class RunObserver:
    """Follows every event file of a run."""

    run_dir: Path
    acknowledged: int = 0
    """Number of trajectories that workers know to be durable."""
    steps: int = 0
    """Highest step that was taken; a learner that was killed repeats the steps since its checkpoint."""
    training: bool = False
    events: list[Event] = field(default_factory=list[Event])
    """Events that are needed to count what is in flight."""
    in_flight: EpisodesInFlight = field(default_factory=EpisodesInFlight)
    _tail: RunTail = field(init=False)

    def __post_init__(self) -> None:
        self._tail = RunTail(self.run_dir)

    def read_new_events(self) -> None:
        """Apply the events that were written since the last call."""
        for event in self._tail.iter_events():
            self._apply_event(event)

    def _apply_event(self, event: Event) -> None:
        self.in_flight.apply_event(event)
        match event["kind"]:
            case "trajectory.acknowledged":
                self.acknowledged += 1
            case "learner.step":
                self.steps = max(self.steps, int(str(event["step"])))
            case "run.phase":
                self.training = event["phase"] == "training"
            case "run.started":
                self.training = False
            case "worker.started" | "episode.started" | "episode.failed" | "trajectory.rejected":
                pass
            case _:
                return
        self.events.append(event)
