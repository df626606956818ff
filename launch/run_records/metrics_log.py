"""The metrics of a run, metrics.jsonl: one line for each optimizer step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import orjson

from launch.run_records.step_facts import BudgetUsage, StepFacts, TokensByLength, sum_counts
from learner.data.token_account import MASKED_REASON
from protocol.events import JsonValue
from protocol.files.filesystem import append_atomically, cut_torn_line
from protocol.run_directory.file_tail import read_json_lines
from protocol.run_directory.layout import METRICS_FILE


class MetricsLog:
    def __init__(
        self, run_dir: Path, now: Callable[[], float] = time.time, passed: Callable[[], float] = time.monotonic
    ) -> None:
        """``now`` returns Unix time, ``passed`` monotonic time for durations."""
        self._path, self._now, self._passed = run_dir / METRICS_FILE, now, passed
        self._last = passed()
        cut_torn_line(self._path)

    def start_clock(self) -> None:
        """Start the rates of the next line here."""
        self._last = self._passed()

    def append_step(self, facts: StepFacts, learner: Mapping[str, float]) -> dict[str, JsonValue]:
        """Append the line of one step and return it."""
        passed = self._passed()
        seconds, self._last = max(passed - self._last, 1e-9), passed
        rewards, masked = facts.rewards, facts.token_account.untrained_tokens_by_length.get(MASKED_REASON)
        lost = sum_counts({MASKED_REASON: masked} if masked else {}, facts.dropped_tokens)
        line: dict[str, JsonValue] = {
            **{name: round(value, 8) for name, value in learner.items()},
            "step": facts.step,
            "t": round(self._now(), 3),
            "elapsed_s": round(seconds, 3),
            "groups": facts.groups,
            "zero_variance_groups": facts.zero_variance_groups,
            "episodes": len(rewards),
            "trained_trajectories": facts.trained,
            "dropped": dict(facts.dropped),
            "staleness_histogram": list(facts.staleness_histogram),
            "sampled_staleness_histogram": list(facts.token_account.staleness_histogram),
            "trained_share_by_decile": [round(share, 4) for share in facts.token_account.share_by_decile],
            "tokens_by_turn": [list(pair) for pair in facts.token_account.by_turn],
            "untrained_tokens_by_length": {reason: dict(buckets) for reason, buckets in lost.items()},
            "wait_s": round(facts.wait_s, 3),
            "step_s": round(facts.step_s, 3),
            "pause_ms": round(facts.pause_ms, 2),
            "tokens_per_s_trained": round(learner.get("trained_tokens", 0.0) / seconds, 1),
            "engine_tokens": facts.sampled_tokens,
            "tokens_per_s_sampled": round(facts.sampled_tokens / seconds, 1),
        }
        if rewards:
            line["reward_mean"] = round(sum(rewards) / len(rewards), 6)
            line["pass_rate"] = round(facts.passed / len(rewards), 6)
        if facts.judge_tokens is not None:
            line["judge_tokens"] = facts.judge_tokens
        if facts.parity is not None:
            line["parity_check_k3"], line["parity_check_tokens"] = facts.parity.rounded_k3, facts.parity.tokens
        if facts.evaluated_step is not None:
            line |= {
                "evaluation_step": facts.evaluated_step,
                "evaluation_pass_at_1": round(facts.evaluation_pass_at_1, 6),
            }
        append_atomically(self._path, orjson.dumps(line) + b"\n")
        return line

    def rewind(self, step: int) -> None:
        """Record that steps after ``step`` are discarded; for readers the later line of a step wins."""
        append_atomically(self._path, orjson.dumps({"rewound_to": step, "t": round(self._now(), 3)}) + b"\n")


def read_budget_usage(run_dir: Path) -> BudgetUsage:
    """Return the usage of all steps of a run, including discarded ones."""
    lines = _lines(run_dir)
    tokens, seconds = (sum(line.get(name, 0.0) for line in lines) for name in ("engine_tokens", "elapsed_s"))
    return BudgetUsage(round(tokens), seconds)


def read_dropped_tokens(run_dir: Path) -> TokensByLength:
    """Return the tokens of dropped trajectories in the metrics of the run's lineage."""
    lines = cast("list[Mapping[str, TokensByLength]]", read_metrics(run_dir))
    untrained = [line.get("untrained_tokens_by_length", {}) for line in lines]
    return sum_counts(
        *({reason: buckets for reason, buckets in lost.items() if reason != MASKED_REASON} for lost in untrained)
    )


def read_metrics(run_dir: Path) -> list[dict[str, float]]:
    """Return the lines of the run's lineage in order of steps; torn and foreign lines are skipped."""
    lines: dict[int, dict[str, float]] = {}
    for line in _lines(run_dir):
        if "rewound_to" in line:
            lines = {step: value for step, value in lines.items() if step <= line["rewound_to"]}
        else:
            lines[int(line["step"])] = line
    return [lines[step] for step in sorted(lines)]


def _lines(run_dir: Path) -> list[dict[str, float]]:
    """Return every whole line of a step or a rewind."""
    lines = read_json_lines(run_dir / METRICS_FILE)
    found = [line for line in lines if isinstance(line.get("rewound_to", line.get("step")), int)]
    return cast("list[dict[str, float]]", found)
