"""Builds summary.json of an evaluation.  Pure.

Keys that SETA's summary has too (utils/results.py) bear its names, with three differences: an attempt passes if all
tests pass, not if the reward is 1.0; ``pass_ratio`` is over the attempts that have a verdict; and infrastructure
failures are not rewards of zero.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from launch.evaluation.scores import PassAtK, estimate_pass_at_k, reported_ks, tally_tasks
from protocol.evaluation import AttemptId, AttemptRecord, AttemptStage, AttemptVerdict


@dataclass(frozen=True, slots=True)
class RewardStatistics:
    mean: float
    std: float
    """Standard deviation of the population."""
    min: float
    max: float

    @staticmethod
    def from_values(values: Sequence[float]) -> RewardStatistics | None:
        """Return None for no values."""
        if not values:
            return None
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
        return RewardStatistics(mean, math.sqrt(variance), min(values), max(values))


@dataclass(frozen=True, slots=True)
class AgentFacts:
    agent: str
    prompt: str
    max_total_tokens: int
    max_completion_tokens: int
    max_iteration: int


@dataclass(frozen=True, slots=True)
class EvalFacts:
    n_trajs: int
    workers: int


@dataclass(frozen=True, slots=True)
class EvaluationDescription:
    """Facts about an evaluation that the summary repeats."""

    trial_name: str
    experiment_name: str
    model_platform: str
    """``sglang``, ``url``, or none."""
    model_type: str
    """Folder, name of the model at its URL, ``oracle`` or ``noop``."""
    dataset: str
    agent: AgentFacts
    eval: EvalFacts


@dataclass(frozen=True, slots=True)
class AttemptTokens:
    prompt: int
    completion: int
    total: int


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """The attempts at the tasks of one family, which rows name as their data source."""

    tasks: int
    graded: int
    """Number of attempts with a verdict."""
    pass_ratio: float
    """Share of these that passed."""
    tests_passed: float
    """Mean share of the tests that passed."""
    reward: float
    """Mean reward."""


@dataclass(frozen=True, slots=True)
class EvaluationSummary:
    trial_name: str
    experiment_name: str
    model_platform: str
    model_type: str
    dataset: str
    total_trajs: int
    """Number of attempts that were made."""
    graded: int
    """Number of attempts with a verdict."""
    error_count: int
    """Number of attempts without a verdict."""
    errors_by_stage: dict[str, int]
    """Number of failures by stage, including those after a verdict."""
    pass_count: int
    pass_ratio: float | None
    """``pass_count`` ÷ ``graded``."""
    reward: RewardStatistics | None
    pass_at_k: dict[str, PassAtK]
    families: dict[str, FamilyResult]
    """Family of tasks → its result, for families with a verdict."""
    tokens: AttemptTokens
    seconds: float
    """Total seconds of all attempts."""
    agent: AgentFacts
    eval: EvalFacts
    planned: int
    complete: bool
    """Whether every planned attempt was made."""


def summarise_attempts(
    about: EvaluationDescription, plan: Sequence[AttemptId], done: Mapping[AttemptId, AttemptRecord], *, seed: int
) -> EvaluationSummary:
    """Summarise the attempts of ``plan``."""
    records = [done[key] for key in plan if key in done]
    verdicts = [record.verdict for record in records if record.verdict is not None]
    passes = sum(verdict.passed for verdict in verdicts)
    prompt = sum(record.usage.prompt_tokens for record in records)
    completion = sum(record.usage.completion_tokens for record in records)
    return EvaluationSummary(
        trial_name=about.trial_name,
        experiment_name=about.experiment_name,
        model_platform=about.model_platform,
        model_type=about.model_type,
        dataset=about.dataset,
        total_trajs=len(records),
        graded=len(verdicts),
        error_count=len(records) - len(verdicts),
        errors_by_stage=count_failures_by_stage(records),
        pass_count=passes,
        pass_ratio=passes / len(verdicts) if verdicts else None,
        reward=RewardStatistics.from_values([verdict.reward for verdict in verdicts]),
        pass_at_k=_estimate_all_k(records, about.eval.n_trajs, seed),
        families=summarise_families(records),
        tokens=AttemptTokens(prompt, completion, prompt + completion),
        seconds=math.fsum(record.seconds for record in records),
        agent=about.agent,
        eval=about.eval,
        planned=len(plan),
        complete=len(records) == len(plan),
    )


def summarise_families(records: Sequence[AttemptRecord]) -> dict[str, FamilyResult]:
    verdicts = defaultdict[str, list[AttemptVerdict]](list)
    for record in records:
        if record.verdict is not None:
            verdicts[record.family].append(record.verdict)
    return {
        family: FamilyResult(
            tasks=len({record.task for record in records if record.family == family}),
            graded=len(found),
            pass_ratio=fmean(verdict.passed for verdict in found),
            tests_passed=fmean(verdict.pass_ratio for verdict in found),
            reward=fmean(verdict.reward for verdict in found),
        )
        for family, found in sorted(verdicts.items())
    }


def count_failures_by_stage(records: Sequence[AttemptRecord]) -> dict[str, int]:
    counts = Counter(record.failure.stage for record in records if record.failure is not None)
    return {stage.value: counts[stage] for stage in AttemptStage}


def _estimate_all_k(records: Sequence[AttemptRecord], attempts: int, seed: int) -> dict[str, PassAtK]:
    tallies = list(tally_tasks(records).values())
    found = {str(k): estimate_pass_at_k(tallies, k, seed) for k in reported_ks(attempts)}
    return {k: each for k, each in found.items() if each is not None}
