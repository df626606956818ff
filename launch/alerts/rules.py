"""The rules for alerts: pure functions from signals to a sentence that names the key to change.

While an alert is open its rule uses a lower threshold (:data:`HYSTERESIS` times the usual one), so that a value near
the threshold does not raise the alert again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from launch.alerts.signals import ENGINE_CHECKS, VOTE_FAILURES, DiskSignals, RunSignals, StepSignals
from protocol.cli.formatting import format_bytes
from protocol.trajectory import EpisodeStatus

HYSTERESIS = 0.8
_MIN_GROUPS, _MIN_EPISODES, _MIN_STEPS = 16, 32, 4
"""Minimum number of samples for a rule to apply."""
_ZERO_VARIANCE_SHARE, _TRUNCATED_SHARE, _WAITING_SHARE, _IDLE_SHARE = 0.5, 0.25, 0.5, 0.5
_TRAINED_SHARE_SPREAD = 0.2
"""Largest accepted difference of the trained share between tenths of the trajectories by length."""
_CLIPPED_SHARE = 0.2
_UNCLIPPED_STEPS, _UNCLIPPED_STALENESS = 8, 0.5
"""Number of steps without any clipping, and their mean staleness, from which the policy hardly moves."""
_COLLAPSED_SHARE, _SOLVED_RATE = 0.1, 0.9
"""Share of the first steps' entropy that counts as collapsed, and the pass rate from which low entropy is fine."""
_UNSTARTED_SHARE, _MIN_UNSTARTED = 0.05, 3
_FAILED_VOTES_SHARE = 0.5
_LOOP_LAG_S = 5.0
"""Seconds for which an event loop may stand still."""
_DISK_FULL_S, _DISK_RESERVES = 2 * 3600.0, 2.0

_TRUNCATIONS: Mapping[EpisodeStatus, str] = {
    EpisodeStatus.TURN_LIMIT: "agent.max_turns",
    EpisodeStatus.CONTEXT_LIMIT: "agent.context_tokens",
    EpisodeStatus.TIME_LIMIT: "agent.time_limit_s",
}
"""Status of a truncated episode → the key that sets its limit."""


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    text: str
    health: bool
    """Whether something is wrong; otherwise something could be better."""


AlertRule = Callable[[RunSignals, float], str | None]
"""Returns the text of the alert, or None; the second argument scales the threshold."""


def evaluate_rules(signals: RunSignals, active: Collection[str] = ()) -> list[Alert]:
    """Return the alerts that hold, health first; ``active`` names the open ones."""
    found: list[Alert] = []
    for rules, health in ((HEALTH_RULES, True), (TUNING_RULES, False)):
        for name, rule in rules.items():
            if (text := rule(signals, HYSTERESIS if name in active else 1.0)) is not None:
                found.append(Alert(name, text, health))
    return found


def check_zero_variance(signals: RunSignals, ease: float) -> str | None:
    groups = signals.groups
    share = sum(group.zero_variance for group in groups) / len(groups) if groups else 0.0
    if len(groups) < _MIN_GROUPS or share <= _ZERO_VARIANCE_SHARE * ease:
        return None
    mean = _mean(group.reward for group in groups)
    kind = "easier" if mean is None or mean < 0.5 else "harder"
    return (
        f"{share:.0%} of the last {len(groups)} groups had zero reward variance, so nothing to train on (mean reward "
        f"{mean or 0.0:.2f}). Choose {kind} tasks in [data], set data.order = 'frontier', or raise rollout.group_size"
    )


def check_entropy(signals: RunSignals, ease: float) -> str | None:
    """Check for entropy collapse, unless the policy passes nearly always."""
    newest, first = signals.steps[-_MIN_STEPS:], signals.entropy_at_first
    now, passed = _mean(step.entropy for step in newest), _mean(step.pass_rate for step in newest)
    if len(newest) < _MIN_STEPS or now is None or not first or (passed or 0.0) >= _SOLVED_RATE:
        return None
    if now >= _COLLAPSED_SHARE * first / ease:
        return None
    return (
        f"the entropy has fallen from {first:.3g} to {now:.3g} at a pass rate of {passed or 0.0:.0%}: the policy has "
        "collapsed. Raise learner.eps_high or kl.coefficient, or lower learner.lr"
    )


def check_clipped(signals: RunSignals, ease: float) -> str | None:
    share = _mean(_clip(step) for step in signals.steps)
    if len(signals.steps) < _MIN_STEPS or share is None or share <= _CLIPPED_SHARE * ease:
        return None
    return (
        f"{share:.0%} of the tokens of the last {len(signals.steps)} steps were clipped: the policy moves too far from "
        "the one that sampled. Lower learner.lr, learner.publish_every or rollout.max_steps_ahead"
    )


def check_sandbox_start(signals: RunSignals, ease: float) -> str | None:
    if signals.unstarted < _MIN_UNSTARTED or signals.unstarted <= _UNSTARTED_SHARE * ease * signals.attempts:
        return None
    return (
        f"{signals.unstarted} of the last {signals.attempts} attempts got no sandbox; episode.failed events say why. "
        "Lower sandbox.start_concurrency or rollout.in_flight, or raise sandbox.start_timeout_s"
    )


def check_judge(signals: RunSignals, ease: float) -> str | None:
    newest = signals.steps[-_MIN_STEPS:]
    failed = {kind: sum(step.judge_failed[at] for step in newest) for at, kind in enumerate(VOTE_FAILURES)}
    lost, valid = sum(failed.values()), sum(step.judge_votes for step in newest)
    if not lost or lost <= _FAILED_VOTES_SHARE * ease * (lost + valid):
        return None
    return (
        f"{lost / (lost + valid):.0%} of the judge's votes of the last {len(newest)} steps failed, most of them "
        f"{max(failed, key=lambda kind: failed[kind])}: they count for nothing. Look whether its server, judge.url or "
        "engines of the run, answers, or raise judge.vote_timeout_s, judge.timeout_s or judge.max_new_tokens"
    )


def check_disk(signals: RunSignals, ease: float) -> str | None:
    found = signals.disk
    if found is None:
        return None
    soon = found.full_in_s is not None and found.full_in_s < _DISK_FULL_S / ease
    if not soon and found.free >= _DISK_RESERVES * found.reserve / ease:
        return None
    return (
        f"{format_bytes(found.free)} are free on the run's disk{_until(found)}; below run.disk_reserve_mb no group "
        "opens. Free some space (longshore runs prune --dry-run lists what can be removed)"
    )


def check_loop_lag(signals: RunSignals, ease: float) -> str | None:
    name, lag_s = max(signals.loop_lag_s.items(), key=lambda each: each[1], default=("", 0.0))
    if lag_s <= _LOOP_LAG_S * ease:
        return None
    return (
        f"the event loop of {name} stood still for {lag_s:.1f} s, and all that it serves: its machine has too few free "
        "processors (lower rollout.in_flight, or use more machines), or one request held it (longshore trace shows "
        "what ran then)"
    )


def check_truncation(signals: RunSignals, ease: float) -> str | None:
    cut = {status: signals.statuses.get(status, 0) for status in _TRUNCATIONS}
    ended, total = sum(signals.statuses.values()), sum(cut.values())
    if ended < _MIN_EPISODES or total <= _TRUNCATED_SHARE * ease * ended:
        return None
    worst = max(cut, key=lambda status: cut[status])
    return (
        f"{total / ended:.0%} of the last {ended} episodes were truncated, most by {worst.value.replace('_', ' ')}: "
        f"raise {_TRUNCATIONS[worst]}, or choose shorter tasks"
    )


def check_idle_learner(signals: RunSignals, ease: float) -> str | None:
    waited, busy = sum(step.wait_s for step in signals.steps), sum(step.step_s for step in signals.steps)
    if len(signals.steps) < _MIN_STEPS or waited <= _WAITING_SHARE * ease * (waited + busy):
        return None
    return (
        f"the learner waited {waited / (waited + busy):.0%} of the time for a batch: raise rollout.in_flight (with "
        "engine.max_running), engine.count or rollout.max_steps_ahead, or lower rollout.groups_per_step"
    )


def check_idle_engines(signals: RunSignals, ease: float) -> str | None:
    share = signals.idle_engines
    if share is None or share <= _IDLE_SHARE * ease:
        return None
    return (
        f"engines had no request in {share:.0%} of the last {ENGINE_CHECKS} checks: raise rollout.in_flight, "
        "rollout.max_steps_ahead or episodes_per_worker if there is capacity, or lower engine.count"
    )


def check_trained_share(signals: RunSignals, ease: float) -> str | None:
    tenths = [step.share_by_decile for step in signals.steps if step.share_by_decile]
    if len(tenths) < _MIN_STEPS:
        return None
    means = [fmean(each) for each in zip(*tenths, strict=True)]
    if max(means) - min(means) <= _TRAINED_SHARE_SPREAD * ease:
        return None
    return (
        f"{means[-1]:.0%} of the tokens in the longest tenth of the trajectories are trained, but {means[0]:.0%} in "
        "the shortest: the staleness bound is uneven over lengths. Lower rollout.max_steps_ahead or rollout.slack, or "
        "resume with staleness.policy = 'wait'"
    )


def check_unclipped(signals: RunSignals, ease: float) -> str | None:
    del ease
    newest = signals.steps[-_UNCLIPPED_STEPS:]
    clips, staleness = [_clip(step) for step in newest], _mean(step.staleness_mean for step in newest)
    if (
        len(newest) < _UNCLIPPED_STEPS
        or (staleness or 0.0) < _UNCLIPPED_STALENESS
        or any(clip is None or clip > 0 for clip in clips)
    ):
        return None
    return (
        f"no token of the last {len(newest)} steps was clipped at a mean staleness of {staleness:.1f}: the policy "
        "hardly moves. Raise learner.lr"
    )


HEALTH_RULES: Mapping[str, AlertRule] = {
    "disk": check_disk,
    "sandbox_start": check_sandbox_start,
    "judge": check_judge,
    "loop_lag": check_loop_lag,
    "zero_variance": check_zero_variance,
    "entropy": check_entropy,
    "clipped": check_clipped,
}
TUNING_RULES: Mapping[str, AlertRule] = {
    "truncation": check_truncation,
    "trained_share": check_trained_share,
    "idle_learner": check_idle_learner,
    "idle_engines": check_idle_engines,
    "unclipped": check_unclipped,
}


def _clip(step: StepSignals) -> float | None:
    if step.clip_high is None or step.clip_low is None:
        return None
    return step.clip_high + step.clip_low


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def _until(found: DiskSignals) -> str:
    return "" if found.full_in_s is None else f", and at this rate it is full in {found.full_in_s / 3600:.1f} h"
