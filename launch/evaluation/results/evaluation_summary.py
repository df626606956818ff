"""Builds summary.json of an evaluation.  Pure.

Keys that SETA's summary has too (utils/results.py) bear its names, with three differences: an attempt passes if all
tests pass, not if the reward is 1.0; ``pass_ratio`` is over the attempts that have a verdict; and infrastructure
failures are not rewards of zero.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from launch.evaluation.scores import PassAtK, estimate_pass_at_k, reported_ks, tally_tasks
from protocol.evaluation import AttemptId, AttemptRecord, AttemptStage, AttemptVerdict

_CALLING_AGENTS = {"hermes", "code_interpreter", "harness"}
"""Agents whose actions are tool calls."""


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
    without_tool_call: int
    """Number of a model's attempts that failed and had no tool call."""
    without_reply: int
    """Number of these in which the model gave no reply."""

    @property
    def tool_call_warning(self) -> str:
        """One line about the attempts without a tool call and what to do; empty for none."""
        if not self.without_tool_call:
            return ""
        silent = f" ({self.without_reply} of them before the first reply)" if self.without_reply else ""
        return (
            f"{self.without_tool_call} of {self.graded} attempts failed without any tool call{silent}: if calls were "
            f"meant, {self._tool_call_advice}, and evaluate into another folder, --output FOLDER"
        )

    @property
    def _tool_call_advice(self) -> str:
        if self.agent.agent not in _CALLING_AGENTS:
            return f"choose an agent that reads what the model writes (docs/agents.md), instead of '{self.agent.agent}'"
        if self.model_platform == "sglang":
            return "read them as the model's own chat template has them, --set agent.format=auto"
        blocks = ", or set agent.kind=bash for ```bash blocks" if self.agent.agent != "harness" else ""
        return (
            "start the server with the model's chat template and tool parser (vLLM: --enable-auto-tool-choice "
            f"--tool-call-parser NAME, SGLang: --tool-call-parser NAME){blocks}"
        )


def summarise_attempts(
    about: EvaluationDescription, plan: Sequence[AttemptId], done: Mapping[AttemptId, AttemptRecord], *, seed: int
) -> EvaluationSummary:
    """Summarise the attempts of ``plan``."""
    records = [done[key] for key in plan if key in done]
    verdicts = [record.verdict for record in records if record.verdict is not None]
    passes = sum(verdict.passed for verdict in verdicts)
    without_call = [
        record
        for record in records
        if about.model_platform != "none" and record.verdict and not record.passed and not record.usage.tool_calls
    ]
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
        without_tool_call=len(without_call),
        without_reply=sum(not record.usage.turns for record in without_call),
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


def most_frequent_error(records: Iterable[AttemptRecord]) -> str:
    """Return what most of the attempts without a verdict failed by; empty for none."""
    counts = Counter(record.failure.message for record in records if record.failure and record.verdict is None)
    return counts.most_common(1)[0][0] if counts else ""


def _estimate_all_k(records: Sequence[AttemptRecord], attempts: int, seed: int) -> dict[str, PassAtK]:
    tallies = list(tally_tasks(records).values())
    found = {str(k): estimate_pass_at_k(tallies, k, seed) for k in reported_ks(attempts)}
    return {k: each for k, each in found.items() if each is not None}
