"""summary.json: what a run came to.  Every figure is read from what was measured; none is assumed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from launch.checkpoints.best_checkpoint import BestCheckpoint
from launch.evaluation.online.run_evaluations import OnlineEvaluationResult
from launch.evaluation.scores import (
    compare_attempts,
    drop_held_out_families,
    evaluation_headline,
    family_table,
    round_score,
)
from launch.run_records.metrics_log import read_metrics
from protocol.evaluation import AttemptRecord
from protocol.events import JsonValue
from protocol.journal import JournalAccounting
from protocol.run_directory.run_tail import read_events
from protocol.trajectory import is_training_trajectory


@dataclass(frozen=True, slots=True)
class SummaryFacts:
    """What the driver knows and no file says."""

    recipe: str
    mode: str
    control: str
    nodes: int
    placement: str
    seed: int
    max_staleness: int
    seconds: float
    """Of the last attempt."""
    evaluations: Mapping[str, Sequence[AttemptRecord]]
    """``before`` and ``after``, as far as they were run."""
    held_out_families: tuple[str, ...]
    accounting: JournalAccounting
    leaked: int
    finished: bool
    """Whether the run came to its end: the last step, or a stop condition."""
    ending: str = ""
    """Why training ended: :class:`launch.control.step_hooks.Ending`."""
    online_evaluations: Sequence[OnlineEvaluationResult] = ()
    """Beside training, in the order of their steps."""
    best: BestCheckpoint | None = None
    """Where one is kept."""


@dataclass(slots=True)
class _Counts:
    """What the event files say."""

    finished: int = 0
    infra_failures: int = 0
    rates: list[tuple[int, list[float]]] = field(default_factory=list[tuple[int, list[float]]])
    """(attempts, share of each tenth by time that infrastructure failed), as the conductor told it."""
    sandboxes: int = 0
    pushed: set[str] = field(default_factory=set[str])
    """Versions that were loaded into an engine while it served."""
    engines: set[str] = field(default_factory=set[str])
    """Those that loaded weights, or lent their memory."""
    loads: int = 0
    pauses: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When an engine stood still for weights, those that it refused among them, and for how many ms."""
    colocation_pauses: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When an engine came back from the learner's turn on their device, and after how many ms."""
    training: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """From when to when some attempt trained."""
    read: int = 0
    lost: int = 0
    """Events that a process counted and did not write whole: holes in the numbers of its lines."""
    spans: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Driver of each attempt → when it said something first and last."""
    spanning: int = 0
    """Acknowledged trajectories that were sampled by more than one version."""
    _last: dict[str, int] = field(default_factory=dict[str, int])
    _trains: set[str] = field(default_factory=set[str])
    """Drivers whose last phase is training."""

    def observe(self, event: dict[str, JsonValue]) -> None:
        self._count(event)
        match event["kind"]:
            case "episode.finished" if is_training_trajectory(str(event["trajectory"])):
                self.finished += 1
            case "trajectory.stored":
                self.spanning += event["versions_min"] != event["versions_max"]
            case "episode.failed" if is_training_trajectory(str(event["trajectory"])):
                self.infra_failures += 1
            case "infra.failure_rates":
                rates = cast("list[float]", event["by_decile"])
                self.rates.append((int(str(event["attempts"])), rates))
            case "sandbox.started":
                self.sandboxes += 1
            case "engine.load":
                self.pushed.add(str(event["version"]))
                self.engines.add(str(event["writer"]))
                self.loads += 1
                self._pause(event)
            case "engine.load_failed" if "pause_ms" in event:
                self._pause(event)
            case "engine.onloaded":
                self.engines.add(str(event["writer"]))
                self.colocation_pauses.append((float(str(event["t"])), 1000 * float(str(event["offloaded_s"]))))
                if event["new"]:
                    self.pushed.add(str(event["version"]))
                    self.loads += 1
            case _:
                pass

    def _pause(self, event: dict[str, JsonValue]) -> None:
        self.pauses.append((float(str(event["t"])), float(str(event["pause_ms"]))))

    def _count(self, event: dict[str, JsonValue]) -> None:
        writer, seq, t = str(event["writer"]), int(str(event["seq"])), float(str(event["t"]))
        before = self._last.get(writer, -1)
        self.read += 1
        self.lost += count_missing_events(before, seq)
        self._last[writer] = seq
        if writer.startswith("driver-"):
            self.spans[writer] = self.spans.get(writer, (t, t))[0], t
            if writer in self._trains:
                self.training[-1] = self.training[-1][0], t
            if event["kind"] == "run.phase":
                self._trains.discard(writer)
                if event["phase"] == "training":
                    self._trains.add(writer)
                    self.training.append((t, t))

    @property
    def failed_by_decile(self) -> list[float]:
        """Share of the training attempts that infrastructure failed, by tenth of the time that they were out, shortest
        first; empty where too few ended for it."""
        attempts = sum(count for count, _ in self.rates)
        columns = zip(*([count * rate for rate in rates] for count, rates in self.rates), strict=True)
        return [round(sum(column) / attempts, 4) for column in columns]

    def paused_share(self, spans: Sequence[tuple[float, float]]) -> float:
        """Of the time in which attempts trained, for how much of it an engine stood still in ``spans`` (end, ms), on
        average over engines."""
        stood_ms = sum(ms for t, ms in spans if any(first <= t <= last for first, last in self.training))
        trained_s = sum(last - first for first, last in self.training)
        return stood_ms / 1000 / len(self.engines) / trained_s if self.engines and trained_s else 0.0

    @property
    def earlier_s(self) -> float:
        """How long the attempts before the last one ran."""
        newest = max(self.spans, key=lambda writer: int(writer.rpartition("-")[2]), default="")
        return sum(last - first for writer, (first, last) in self.spans.items() if writer != newest)


def count_missing_events(before: int, seq: int) -> int:
    """How many events a writer numbered between two of its lines and could not write; ``before`` is −1 at its first.  A
    process in the place of another begins at 0."""
    return seq - before - 1 if seq > before else seq


def summarise_run(run_dir: Path, facts: SummaryFacts) -> dict[str, JsonValue]:
    counts = _Counts()
    for event in read_events(run_dir):
        counts.observe(event)
    pauses = [ms for _, ms in counts.pauses]
    steps = read_metrics(run_dir)
    books = facts.accounting
    return {
        "recipe": facts.recipe,
        "finished": facts.finished,
        "ended": facts.ending,
        "steps": int(steps[-1]["step"]) if steps else 0,
        "mode": facts.mode,
        "control": facts.control,
        "nodes": facts.nodes,
        "seed": facts.seed,
        "seconds": round(counts.earlier_s + facts.seconds, 1),
        "eval": _evaluation(facts),
        "best": _best(facts.best),
        "trajectories": {
            "finished": counts.finished,
            "acknowledged": books.acknowledged,
            "trained": books.trained,
            "dropped": {str(reason): number for reason, number in books.dropped.items()},
            "dropped_tokens_by_length": {reason: dict(buckets) for reason, buckets in books.dropped_tokens.items()},
            "in_buffer": books.in_buffer,
            "masked_tokens": round(_total(steps, "masked_tokens")),
            "mixed_prefix_turns": round(_total(steps, "mixed_prefix_turns")),
            "server_switched_turns": round(_total(steps, "server_switched_turns")),
            "superseded": books.superseded,
            "spanning_versions": counts.spanning,
            "infra_failures": counts.infra_failures,
            "infra_failed_by_decile": list(counts.failed_by_decile),
        },
        "token_age": {
            "max": _largest(steps, "staleness_max"),
            "mean": round(_weighted(steps, "staleness_mean", "trained_tokens"), 4),
            "bound": facts.max_staleness,
        },
        "clip": {
            "high_max": _largest(steps, "clip_high"),
            "low_max": _largest(steps, "clip_low"),
            "high_steps": sum(step.get("clip_high", 0.0) > 0 for step in steps),
            "low_steps": sum(step.get("clip_low", 0.0) > 0 for step in steps),
        },
        "weights": {
            "pushes": len(counts.pushed),
            "loads": counts.loads,
            "pause_ms_p50": round(statistics.median(pauses), 2) if pauses else 0.0,
            "pause_ms_max": round(max(pauses), 2) if pauses else 0.0,
            "paused_share": round(counts.paused_share(counts.pauses), 6),
        },
        "placement": {
            "kind": facts.placement,
            "turns": len(counts.colocation_pauses),
            "blocked_s": round(sum(ms for _, ms in counts.colocation_pauses) / 1000, 3),
            "blocked_share": round(counts.paused_share(counts.colocation_pauses), 6),
        },
        "sandbox": {"started": counts.sandboxes, "leaked": facts.leaked},
        "tokens_per_s": {
            "sampled": round(_total(steps, "engine_tokens") / _seconds(steps), 1),
            "trained": round(_total(steps, "trained_tokens") / _seconds(steps), 1),
        },
        "events": {"written": counts.read, "lost": counts.lost},
    }


def list_failed_checks(facts: SummaryFacts, steps: Sequence[Mapping[str, float]]) -> list[str]:
    """What a run must hold and did not, one line each.  ``steps``: the metrics of those that stand."""
    trained, oldest = round(_total(steps, "trained_trajectories")), _largest(steps, "staleness_max")
    checks = (
        (facts.finished, "the run did not come to its end"),
        (facts.leaked == 0, f"{facts.leaked} containers, networks, volumes or copies were left behind"),
        (
            trained == facts.accounting.trained,
            f"the learner trained {trained} trajectories, the journal has {facts.accounting.trained} as trained",
        ),
        (
            oldest <= facts.max_staleness,
            f"a token of age {oldest:g} was trained; staleness.max_staleness = {facts.max_staleness} is the bound",
        ),
    )
    return [line for held, line in checks if not held]


def _evaluation(facts: SummaryFacts) -> dict[str, JsonValue]:
    result: dict[str, JsonValue] = {}
    for name, attempts in facts.evaluations.items():
        result[name] = evaluation_headline(attempts, facts.held_out_families)
    if {"before", "after"} <= facts.evaluations.keys():
        change = compare_attempts(
            drop_held_out_families(facts.evaluations["before"], facts.held_out_families),
            drop_held_out_families(facts.evaluations["after"], facts.held_out_families),
        )
        result["difference"] = round(change.difference, 4)
        result["difference_stderr"] = round_score(change.stderr)
        result["ci95"] = None if change.ci95 is None else [round(end, 4) for end in change.ci95]
    result["steps"] = [
        {"step": exam.step, "version": exam.version, **evaluation_headline(exam.attempts, facts.held_out_families)}
        for exam in facts.online_evaluations
    ]
    result["families"] = family_table(facts.evaluations, facts.held_out_families)
    return result


def _best(best: BestCheckpoint | None) -> JsonValue:
    if best is None:
        return None
    return {
        "step": best.step,
        "pass_at_1": round(best.pass_at_1, 4),
        "checkpoint": str(best.checkpoint),
        "model": None if best.model is None else str(best.model),
    }


def _total(steps: Sequence[Mapping[str, float]], name: str) -> float:
    return sum(step.get(name, 0.0) for step in steps)


def _largest(steps: Sequence[Mapping[str, float]], name: str) -> float:
    """A step in which no token had loss has no metrics of the loss."""
    return max((step.get(name, 0.0) for step in steps), default=0.0)


def _weighted(steps: Sequence[Mapping[str, float]], name: str, weight: str) -> float:
    total = _total(steps, weight)
    return sum(step.get(name, 0.0) * step.get(weight, 0.0) for step in steps) / total if total else 0.0


def _seconds(steps: Sequence[Mapping[str, float]]) -> float:
    """Time of training in which the steps were made, waiting included, time between attempts left out."""
    return max(_total(steps, "elapsed_s"), 1e-9)
