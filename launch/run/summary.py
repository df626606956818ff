"""The summary of a run, summary.json.  Every figure is measured; none is assumed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.checkpoints.best_checkpoint import BestCheckpoint
from launch.evaluation.held_out.evaluation_store import OnlineEvaluationResult
from launch.evaluation.scores import (
    compare_attempts,
    drop_held_out_families,
    evaluation_headline,
    family_table,
    round_score,
)
from launch.run.event_counts import EventCounts
from launch.run_records.metrics_log import read_metrics
from protocol.evaluation import AttemptRecord
from protocol.events import JsonValue
from protocol.journal import JournalAccounting


@dataclass(frozen=True, slots=True)
class SummaryFacts:
    """Facts about a run that are in none of its files."""

    recipe: str
    mode: str
    negative_control: str
    nodes: int
    placement: str
    seed: int
    max_staleness: int
    seconds: float
    """Seconds since the run's last start."""
    evaluations: Mapping[str, Sequence[AttemptRecord]]
    """Attempts of ``before`` and ``after``, if they ran."""
    held_out_families: tuple[str, ...]
    accounting: JournalAccounting
    leaked: int
    finished: bool
    """Whether the run reached its last step or a stop condition."""
    leak_removal: str = ""
    """Commands that remove what was left behind."""
    ending: str = ""
    """Why training ended: :class:`launch.control.step_hooks.StopReason`."""
    online_evaluations: Sequence[OnlineEvaluationResult] = ()
    """Online evaluations in the order of their steps."""
    best: BestCheckpoint | None = None
    """The best checkpoint, if one is kept."""


def summarise_run(run_dir: Path, facts: SummaryFacts) -> dict[str, JsonValue]:
    """Return the summary of a run from ``facts``, its events and its metrics."""
    counts, steps = EventCounts.read_run(run_dir), read_metrics(run_dir)
    return {
        "recipe": facts.recipe,
        "finished": facts.finished,
        "ended": facts.ending,
        "steps": int(steps[-1]["step"]) if steps else 0,
        "mode": facts.mode,
        "negative_control": facts.negative_control,
        "nodes": facts.nodes,
        "seed": facts.seed,
        "seconds": round(counts.earlier_starts_s + facts.seconds, 1),
        "evaluation": _evaluation(facts),
        "best": _best(facts.best),
        "trajectories": _trajectories(counts, facts.accounting, steps),
        "staleness": {
            "max": _largest(steps, "staleness_max"),
            "mean": round(_weighted(steps, "staleness_mean", "trained_tokens"), 4),
            "max_staleness": facts.max_staleness,
        },
        "clip": {
            "high_max": _largest(steps, "clip_high"),
            "low_max": _largest(steps, "clip_low"),
            "high_steps": sum(step.get("clip_high", 0.0) > 0 for step in steps),
            "low_steps": sum(step.get("clip_low", 0.0) > 0 for step in steps),
        },
        "weights": _weights(counts),
        "colocation": {
            "placement": facts.placement,
            "offloads": len(counts.colocation_pauses),
            "blocked_s": round(sum(ms for _, ms in counts.colocation_pauses) / 1000, 3),
            "blocked_share": round(counts.paused_share(counts.colocation_pauses), 6),
        },
        "grading": {"isolation": dict(counts.isolation), "suspicious": counts.suspicious},
        "sandbox": {"started": counts.sandboxes, "leaked": facts.leaked},
        "tokens_per_s": {
            "sampled": round(_total(steps, "engine_tokens") / _seconds(steps), 1),
            "trained": round(_total(steps, "trained_tokens") / _seconds(steps), 1),
        },
        "events": {"written": counts.read, "lost": counts.lost},
    }


def _trajectories(
    counts: EventCounts, accounting: JournalAccounting, steps: Sequence[Mapping[str, float]]
) -> dict[str, JsonValue]:
    return {
        "finished": counts.episodes_finished,
        "acknowledged": accounting.acknowledged,
        "trained": accounting.trained,
        "dropped": {str(reason): number for reason, number in accounting.dropped.items()},
        "dropped_tokens_by_length": {reason: dict(buckets) for reason, buckets in accounting.dropped_tokens.items()},
        "in_buffer": accounting.in_buffer,
        "masked_tokens": round(_total(steps, "masked_tokens")),
        "mixed_prefix_turns": round(_total(steps, "mixed_prefix_turns")),
        "server_switched_turns": round(_total(steps, "server_switched_turns")),
        "auxiliary_turns": round(_total(steps, "auxiliary_turns")),
        "discarded_turns": round(_total(steps, "discarded_turns")),
        "superseded": accounting.superseded,
        "spanning_versions": counts.spanning_versions,
        "infra_failures": counts.infra_failures,
        "infra_failed_by_decile": list(counts.failed_by_decile),
    }


def _weights(counts: EventCounts) -> dict[str, JsonValue]:
    pauses = [ms for _, ms in counts.pauses]
    return {
        "versions": len(counts.loaded_versions),
        "loads": counts.loads,
        "pause_ms_p50": round(statistics.median(pauses), 2) if pauses else 0.0,
        "pause_ms_max": round(max(pauses), 2) if pauses else 0.0,
        "paused_share": round(counts.paused_share(counts.pauses), 6),
    }


def list_failed_checks(facts: SummaryFacts, steps: Sequence[Mapping[str, float]]) -> list[str]:
    """Return one line for each check that the run failed; ``steps`` are the metrics of its lineage."""
    trained, stalest = round(_total(steps, "trained_trajectories")), _largest(steps, "staleness_max")
    checks = (
        (facts.finished, "the run did not reach its end"),
        (
            facts.leaked == 0,
            f"{facts.leaked} containers, networks, volumes or copies were left behind: {facts.leak_removal}",
        ),
        (
            trained == facts.accounting.trained,
            f"the learner trained {trained} trajectories, the journal has {facts.accounting.trained} as trained",
        ),
        (
            stalest <= facts.max_staleness,
            f"a token of staleness {stalest:g} was trained: staleness.max_staleness = {facts.max_staleness}",
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
        {"step": each.step, "version": each.version, **evaluation_headline(each.attempts, facts.held_out_families)}
        for each in facts.online_evaluations
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
    """Return the largest value; a step in which no token had loss has no metrics of the loss."""
    return max((step.get(name, 0.0) for step in steps), default=0.0)


def _weighted(steps: Sequence[Mapping[str, float]], name: str, weight: str) -> float:
    total = _total(steps, weight)
    return sum(step.get(name, 0.0) * step.get(weight, 0.0) for step in steps) / total if total else 0.0


def _seconds(steps: Sequence[Mapping[str, float]]) -> float:
    """Return the seconds of training, waiting included, time between starts excluded."""
    return max(_total(steps, "elapsed_s"), 1e-9)
