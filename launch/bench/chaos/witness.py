"""What a run's own event files say while it runs, and how much was in flight when a process was killed.

In flight is what the workers say is: episodes that began and whose trajectory is not acknowledged, given back or gone
with its worker's process, or with the driver's.  Each holds an open ticket.  A worker that was killed says nothing of
its end: the list of the killed does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.bench.chaos.points import Kill, Process
from launch.monitor.store import EVENT_FILES
from launch.monitor.tail import Event, RunReader


def name_of(event: Event) -> str:
    """The trajectory of an event, without the attempt that some say with it."""
    return str(event["trajectory"]).partition("-a")[0]


@dataclass(slots=True)
class InFlight:
    """Taken in the order of time."""

    _processes: dict[str, int] = field(default_factory=dict[str, int])
    """Worker → the process that said last that it works."""
    _running: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    """Process → trajectories; none of one that has ended, whatever it wrote in its last moments."""

    def take(self, event: Event) -> None:
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
                mine.add(name_of(event))
            case "trajectory.acked" | "trajectory.unwanted" if mine is not None:
                mine.discard(name_of(event))
            case "episode.failed":
                for names in self._running.values():
                    names.discard(name_of(event))
            case _:
                pass

    def end(self, kill: Kill) -> None:
        """A process was killed; what ran in it is gone, and with the driver all."""
        if kill.process is Process.DRIVER:
            self._running.clear()
        self._running.pop(kill.pid, None)

    @property
    def count(self) -> int:
        return sum(map(len, self._running.values()))

    def of(self, process: int) -> int:
        return len(self._running.get(process, ()))


def in_flight_at(events: Iterable[Event], kills: Sequence[Kill]) -> list[int]:
    """How much was in flight when each of ``kills`` came; what earlier ones ended is not."""
    ordered = sorted(events, key=_time)
    state, counts, at = InFlight(), dict[int, int](), 0
    for index in sorted(range(len(kills)), key=lambda index: kills[index].t):
        while at < len(ordered) and _time(ordered[at]) <= kills[index].t:
            state.take(ordered[at])
            at += 1
        counts[index] = state.count
        state.end(kills[index])
    return [counts[index] for index in range(len(kills))]


def _time(event: Event) -> float:
    return float(str(event["t"]))


@dataclass(slots=True)
class Witness:
    """Reads on in every event file of a run."""

    run_dir: Path
    acked: int = 0
    """Trajectories that workers were told are durable."""
    steps: int = 0
    """Steps taken, those that were taken again among them."""
    training: bool = False
    events: list[Event] = field(default_factory=list[Event])
    """Those that tell what is in flight."""
    in_flight: InFlight = field(default_factory=InFlight)
    _reader: RunReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = RunReader(self.run_dir, EVENT_FILES)

    def look(self) -> None:
        """Take in what was written since."""
        while lines := self._reader.read():
            for line in lines:
                if line.value is not None:
                    self._take(line.value)

    def _take(self, event: Event) -> None:
        self.in_flight.take(event)
        match event["kind"]:
            case "trajectory.acked":
                self.acked += 1
            case "learner.step":
                self.steps += 1
            case "run.phase":
                self.training = event["phase"] == "training"
            case "run.started":
                self.training = False
            case "worker.started" | "episode.started" | "episode.failed" | "trajectory.unwanted":
                pass
            case _:
                return
        self.events.append(event)
