"""What a run's own event files say while it runs, and how much was in flight when a process was killed.

In flight is what the workers say is: episodes that began and whose trajectory is not acknowledged, given back or gone
with its worker's process, or with the driver's.  Each holds an open ticket.  A worker that was killed says nothing of
its end: the list of the killed does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.bench.chaos.kill_points import Kill, KilledProcess
from protocol.run_directory.json_fields import Event
from protocol.run_directory.run_tail import RunTail


def trajectory_of_event(event: Event) -> str:
    """The trajectory of an event, without the attempt that some say with it."""
    return str(event["trajectory"]).partition("-a")[0]


@dataclass(slots=True)
class EpisodesInFlight:
    """Taken in the order of time."""

    _processes: dict[str, int] = field(default_factory=dict[str, int])
    """Worker → the process that said last that it works."""
    _running: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    """Process → trajectories; none of one that has ended, whatever it wrote in its last moments."""

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
        """A process was killed; what ran in it is gone, and with the driver all."""
        if kill.process is KilledProcess.DRIVER:
            self._running.clear()
        self._running.pop(kill.pid, None)

    @property
    def count(self) -> int:
        return sum(map(len, self._running.values()))

    def count_in_process(self, process: int) -> int:
        return len(self._running.get(process, ()))


def count_in_flight_at_kills(events: Iterable[Event], kills: Sequence[Kill]) -> list[int]:
    """How much was in flight when each of ``kills`` came; what earlier ones ended is not."""
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
    """Reads on in every event file of a run."""

    run_dir: Path
    acknowledged: int = 0
    """Trajectories that workers were told are durable."""
    steps: int = 0
    """Steps taken, those that were taken again among them."""
    training: bool = False
    events: list[Event] = field(default_factory=list[Event])
    """Those that tell what is in flight."""
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
                self.steps += 1
            case "run.phase":
                self.training = event["phase"] == "training"
            case "run.started":
                self.training = False
            case "worker.started" | "episode.started" | "episode.failed" | "trajectory.rejected":
                pass
            case _:
                return
        self.events.append(event)
