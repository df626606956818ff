"""Counts over the events of a run, for its summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from protocol.events import JsonValue
from protocol.run_directory.run_tail import read_events
from protocol.trajectory import is_training_trajectory


@dataclass(slots=True)
class EventCounts:
    """Counts of a run's events, for its summary."""

    episodes_finished: int = 0
    isolation: Counter[str] = field(default_factory=Counter[str])
    """Number of graded episodes by whose programs ran their tests, evaluations included."""
    suspicious: int = 0
    """Number of episodes with signs of cheating."""
    infra_failures: int = 0
    failure_rates: list[tuple[int, list[float]]] = field(default_factory=list[tuple[int, list[float]]])
    """(attempts, share that infrastructure failed in each tenth by duration), as the scheduler reported them."""
    sandboxes: int = 0
    loaded_versions: set[str] = field(default_factory=set[str])
    """Versions that were loaded into an engine while it served."""
    engines: set[str] = field(default_factory=set[str])
    """Engines that loaded weights or offloaded their memory."""
    loads: int = 0
    pauses: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """(end as Unix time, milliseconds) of each pause of an engine for new weights, refused ones included."""
    colocation_pauses: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """(end as Unix time, milliseconds) of each time that an engine offloaded its memory for the learner."""
    training: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """(start, end) of each training phase, as Unix times."""
    read: int = 0
    lost: int = 0
    """Events that a process numbered and did not write whole."""
    start_spans: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Driver of each start of the run → Unix times of its first and last event."""
    spanning_versions: int = 0
    """Acknowledged trajectories that were sampled by more than one version."""
    _last_seq: dict[str, int] = field(default_factory=dict[str, int])
    _training_drivers: set[str] = field(default_factory=set[str])
    """Drivers whose last phase is training."""

    @classmethod
    def read_run(cls, run_dir: Path) -> EventCounts:
        """Count all events of a run."""
        counts = cls()
        for event in read_events(run_dir):
            counts.observe(event)
        return counts

    def observe(self, event: dict[str, JsonValue]) -> None:
        """Count one event; those of one writer come in their order."""
        self._observe_writer(event)
        if isolation := event.get("isolation"):
            self.isolation[str(isolation)] += 1
        match event["kind"]:
            case "episode.finished" if is_training_trajectory(str(event["trajectory"])):
                self.episodes_finished += 1
            case "episode.suspicious":
                self.suspicious += 1
            case "trajectory.stored":
                self.spanning_versions += event["versions_min"] != event["versions_max"]
            case "episode.failed" if is_training_trajectory(str(event["trajectory"])):
                self.infra_failures += 1
            case "infra.failure_rates":
                rates = cast("list[float]", event["by_decile"])
                self.failure_rates.append((int(str(event["attempts"])), rates))
            case "sandbox.started":
                self.sandboxes += 1
            case "engine.loaded":
                self.loaded_versions.add(str(event["version"]))
                self.engines.add(str(event["writer"]))
                self.loads += 1
                self._add_pause(event)
            case "engine.load_failed" if "pause_ms" in event:
                self._add_pause(event)
            case "engine.onloaded":
                self.engines.add(str(event["writer"]))
                self.colocation_pauses.append((float(str(event["t"])), 1000 * float(str(event["offloaded_s"]))))
                if event["new"]:
                    self.loaded_versions.add(str(event["version"]))
                    self.loads += 1
            case _:
                pass

    def _add_pause(self, event: dict[str, JsonValue]) -> None:
        self.pauses.append((float(str(event["t"])), float(str(event["pause_ms"]))))

    def _observe_writer(self, event: dict[str, JsonValue]) -> None:
        writer, seq, t = str(event["writer"]), int(str(event["seq"])), float(str(event["t"]))
        self.read += 1
        self.lost += count_missing_events(self._last_seq.get(writer, -1), seq)
        self._last_seq[writer] = seq
        if not writer.startswith("driver-"):
            return
        self.start_spans[writer] = self.start_spans.get(writer, (t, t))[0], t
        if writer in self._training_drivers:
            self.training[-1] = self.training[-1][0], t
        if event["kind"] == "run.phase":
            self._training_drivers.discard(writer)
            if event["phase"] == "training":
                self._training_drivers.add(writer)
                self.training.append((t, t))

    @property
    def failed_by_decile(self) -> list[float]:
        """Share of training attempts that infrastructure failed, by tenth of their duration, shortest first; empty if
        too few ended."""
        attempts = sum(count for count, _ in self.failure_rates)
        columns = zip(*([count * rate for rate in rates] for count, rates in self.failure_rates), strict=True)
        return [round(sum(column) / attempts, 4) for column in columns]

    def paused_share(self, pauses: Sequence[tuple[float, float]]) -> float:
        """Return the share of the training time that an engine spent in ``pauses``, averaged over engines."""
        paused_ms = sum(ms for t, ms in pauses if any(first <= t <= last for first, last in self.training))
        trained_s = sum(last - first for first, last in self.training)
        return paused_ms / 1000 / len(self.engines) / trained_s if self.engines and trained_s else 0.0

    @property
    def earlier_starts_s(self) -> float:
        """Seconds that the run's starts before the last one lasted."""
        newest = max(self.start_spans, key=lambda writer: int(writer.rpartition("-")[2]), default="")
        return sum(last - first for writer, (first, last) in self.start_spans.items() if writer != newest)


def count_missing_events(before: int, seq: int) -> int:
    """Return how many events a writer numbered between two of its lines and did not write; ``before`` is −1 at its
    first line.  A process that replaces another starts at 0."""
    return seq - before - 1 if seq > before else seq
