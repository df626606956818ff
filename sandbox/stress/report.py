"""The result of a stress run: figures, checks, JSON object. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.events import JsonValue
from sandbox.docker.inventory import DockerInventory

_MOST_PROBLEMS = 20
"""Maximum number of problems whose text is kept; all are counted."""


@dataclass(slots=True)
class FaultTally:
    """Outcomes of one kind of fault. Each injected fault ends as ``resumed`` or as ``lost_typed``."""

    injected: int = 0
    resumed: int = 0
    """Number of sessions that answered again: with their state, or with a new shell that was reported."""
    lost_typed: int = 0
    """Number of leases that ended with a typed error, in time."""
    skipped: int = 0
    """Number of faults not injected, because there was no engine that may be broken."""

    @property
    def accounted(self) -> bool:
        return self.injected == self.resumed + self.lost_typed

    def json(self) -> dict[str, JsonValue]:
        return {
            "injected": self.injected,
            "resumed": self.resumed,
            "lost_typed": self.lost_typed,
            "skipped": self.skipped,
        }


@dataclass(slots=True)
class StressRate:
    """A number of events and the seconds that they took, summed over rounds."""

    count: int = 0
    seconds: float = 0.0

    def add(self, count: int, seconds: float) -> None:
        self.count += count
        self.seconds += seconds

    @property
    def per_s(self) -> float | None:
        return self.count / self.seconds if self.seconds > 0 else None


@dataclass(slots=True)
class StressReport:
    """Figures of a run, filled in while it runs; what was not measured stays empty and is null in the JSON."""

    sessions: int
    live_peak: int = 0
    commands: int = 0
    """Number of verified answers."""
    wrong_answers: int = 0
    leaked_containers: int = 0
    starts: StressRate = field(default_factory=StressRate)
    """Starts of sandboxes, until the shell has answered once."""
    floor_starts: StressRate = field(default_factory=StressRate)
    """Creations and starts of a sleeping container."""
    acquire_ms: list[float] = field(default_factory=list[float])
    command_ms: list[float] = field(default_factory=list[float])
    """Milliseconds of single commands, one at a time, with all sessions open."""
    docker_exec_ms: list[float] = field(default_factory=list[float])
    pipe_ms: list[float] = field(default_factory=list[float])
    load_ms: list[float] = field(default_factory=list[float])
    load: StressRate = field(default_factory=StressRate)
    bytes_per_session: int | None = None
    steal: float | None = None
    """Share of the CPU time that the hypervisor gave to other machines."""
    faults: dict[str, FaultTally] = field(default_factory=dict[str, FaultTally])
    failures: int = 0
    problems: list[str] = field(default_factory=list[str])
    """Descriptions of wrong answers and of failures."""
    interrupted: bool = False
    phase: str = ""

    def add_wrong_answer(self, what: str) -> None:
        self.wrong_answers += 1
        self._add_problem(f"wrong answer: {what}")

    def add_failure(self, what: str) -> None:
        self.failures += 1
        self._add_problem(what)

    def add_leaks(self, left: DockerInventory) -> None:
        """Count the objects that an engine has and did not have before."""
        self.leaked_containers += len(left.containers)
        kinds = {"container": left.containers, "network": left.networks, "volume": left.volumes, "copy": left.images}
        for kind, found in kinds.items():
            for each in sorted(found):
                self.add_failure(f"{kind} left: {each}")

    def _add_problem(self, what: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(what)

    @property
    def start_vs_floor(self) -> float | None:
        return ratio(self.starts.per_s, self.floor_starts.per_s)

    @property
    def command_vs_exec(self) -> float | None:
        return ratio(percentile(self.docker_exec_ms, 50), percentile(self.command_ms, 50))

    @property
    def command_vs_pipe(self) -> float | None:
        return ratio(percentile(self.command_ms, 50), percentile(self.pipe_ms, 50))

    def failed_checks(self) -> list[str]:
        """Return the checks that did not hold."""
        checks = [
            (self.wrong_answers == 0, f"{self.wrong_answers} wrong answers"),
            (self.leaked_containers == 0, f"{self.leaked_containers} containers left"),
            (self.live_peak >= self.sessions, f"{self.live_peak} of {self.sessions} sessions were alive at once"),
            (self.failures == 0, f"{self.failures} failures"),
        ]
        checks += [
            (
                tally.accounted,
                f"fault {name}: {tally.injected} injected, {tally.resumed + tally.lost_typed} accounted for",
            )
            for name, tally in self.faults.items()
        ]
        return [failure for held, failure in checks if not held]

    @property
    def ok(self) -> bool:
        return not self.failed_checks() and not self.interrupted

    def json(self) -> dict[str, JsonValue]:
        """Return the object of ``--json``: times in milliseconds, rates per second, memory in bytes."""
        return {
            "sessions": self.sessions,
            "live_peak": self.live_peak,
            "commands": self.commands,
            "wrong_answers": self.wrong_answers,
            "leaked_containers": self.leaked_containers,
            "start": {"per_s": _rounded(self.starts.per_s), "floor_per_s": _rounded(self.floor_starts.per_s)},
            "acquire_ms": _times(self.acquire_ms, 50, 95),
            "command_ms": _times(self.command_ms, 50, 95),
            "docker_exec_ms": _times(self.docker_exec_ms, 50),
            "pipe_ms": _times(self.pipe_ms, 50),
            "command_vs_exec": _rounded(self.command_vs_exec),
            "command_vs_pipe": _rounded(self.command_vs_pipe),
            "start_vs_floor": _rounded(self.start_vs_floor),
            "bytes_per_session": self.bytes_per_session,
            "faults": {name: tally.json() for name, tally in self.faults.items()},
        }


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the smallest value that is at least as large as ``percent`` of all (nearest rank); None for no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)]


def ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _times(values: Sequence[float], *percents: int) -> dict[str, JsonValue]:
    return {f"p{percent}": _rounded(percentile(values, percent)) for percent in percents}
