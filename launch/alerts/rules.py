"""Which facts are worth a word, and what to do about them: one pure rule for each, a sentence and a knob.

A rule that has spoken is held to an easier limit (:data:`EASE` of it), so that what lies near one is not told again and
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from launch.alerts.signals import ENGINE_CHECKS, DiskSignals, RunSignals, StepSignals
from protocol.trajectory import EpisodeStatus

HYSTERESIS = 0.8
_GROUPS, _EPISODES, _STEPS = 16, 32, 4
"""Fewer say nothing yet."""
_ALIKE, _TRUNCATED, _WAITING, _IDLE = 0.5, 0.25, 0.5, 0.5
_SPREAD = 0.2
"""Between the shares of two tenths by length that are trained."""
_CLIPPED = 0.2
_UNCLIPPED_STEPS, _OLD = 8, 0.5
"""So many steps on tokens of that mean age without a clip: the policy hardly moves."""
_COLLAPSED, _SOLVED = 0.1, 0.9
"""Of the entropy of the first steps; a policy that passes so often may be sure of itself."""
_UNSTARTED, _UNSTARTED_LEAST = 0.05, 3
_FULL_S, _RESERVES = 2 * 3600.0, 2.0

_TRUNCATIONS: Mapping[EpisodeStatus, str] = {
    EpisodeStatus.TURN_LIMIT: "agent.max_turns",
    EpisodeStatus.CONTEXT_LIMIT: "agent.context_tokens",
    EpisodeStatus.TIME_LIMIT: "agent.time_limit_s",
}
"""How an episode is cut off, and what does it."""


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    text: str
    health: bool
    """Something is wrong; else something could be better."""


AlertRule = Callable[[RunSignals, float], str | None]
"""What it says of the facts; the second argument eases its limit, 1 for none."""


def evaluate_rules(facts: RunSignals, active: Collection[str] = ()) -> list[Alert]:
    """What is worth a word, health first, where ``told`` are those that hold already."""
    found: list[Alert] = []
    for rules, health in ((HEALTH_RULES, True), (TUNING_RULES, False)):
        for about, rule in rules.items():
            if (said := rule(facts, HYSTERESIS if about in active else 1.0)) is not None:
                found.append(Alert(about, said, health))
    return found


def check_zero_variance(facts: RunSignals, ease: float) -> str | None:
    groups = facts.groups
    share = sum(group.zero_variance for group in groups) / len(groups) if groups else 0.0
    if len(groups) < _GROUPS or share <= _ALIKE * ease:
        return None
    mean = _mean(group.reward for group in groups)
    way = "easier" if mean is None or mean < 0.5 else "harder"
    return (
        f"{share:.0%} of the last {len(groups)} groups gave nothing to train on: no reward in them differs (mean "
        f"{mean or 0.0:.2f}). Choose {way} tasks under [data], set data.order = 'frontier', or raise rollout.group_size"
    )


def check_entropy(facts: RunSignals, ease: float) -> str | None:
    """Not of a policy that passes nearly always."""
    newest, first = facts.steps[-_STEPS:], facts.entropy_at_first
    now, passed = _mean(step.entropy for step in newest), _mean(step.pass_rate for step in newest)
    if len(newest) < _STEPS or now is None or not first or (passed or 0.0) >= _SOLVED:
        return None
    if now >= _COLLAPSED * first / ease:
        return None
    return (
        f"the entropy has fallen from {first:.3g} to {now:.3g}, and the pass rate is {passed or 0.0:.0%}: the policy "
        "samples the same again and again. Raise learner.eps_high or kl.coefficient, or lower learner.lr"
    )


def check_clipped(facts: RunSignals, ease: float) -> str | None:
    share = _mean(_clip(step) for step in facts.steps)
    if len(facts.steps) < _STEPS or share is None or share <= _CLIPPED * ease:
        return None
    return (
        f"{share:.0%} of the tokens of the last {len(facts.steps)} steps were clipped: the policy moves farther than "
        "its samples tell of. Lower learner.lr, learner.publish_every or rollout.max_staleness"
    )


def check_sandbox_start(facts: RunSignals, ease: float) -> str | None:
    if facts.unstarted < _UNSTARTED_LEAST or facts.unstarted <= _UNSTARTED * ease * facts.attempts:
        return None
    return (
        f"{facts.unstarted} of the last {facts.attempts} attempts got no sandbox: the episode.failed events say why. "
        "Lower sandbox.start_concurrency or rollout.in_flight, or raise sandbox.start_timeout_s"
    )


def check_disk(facts: RunSignals, ease: float) -> str | None:
    found = facts.disk
    if found is None:
        return None
    soon = found.full_in_s is not None and found.full_in_s < _FULL_S / ease
    if not soon and found.free >= _RESERVES * found.reserve / ease:
        return None
    return (
        f"{_size(found)} are free where the run is written{_until(found)}: below run.disk_reserve_mb no group opens. "
        "Free some space (python -m launch.runs prune --dry-run shows what can go)"
    )


def check_truncation(facts: RunSignals, ease: float) -> str | None:
    cut = {status: facts.statuses.get(status, 0) for status in _TRUNCATIONS}
    ended, total = sum(facts.statuses.values()), sum(cut.values())
    if ended < _EPISODES or total <= _TRUNCATED * ease * ended:
        return None
    worst = max(cut, key=lambda status: cut[status])
    return (
        f"{total / ended:.0%} of the last {ended} episodes were cut off, most by {worst.value.replace('_', ' ')}: "
        f"raise {_TRUNCATIONS[worst]}, or choose shorter tasks"
    )


def check_idle_learner(facts: RunSignals, ease: float) -> str | None:
    waited, busy = sum(step.wait_s for step in facts.steps), sum(step.step_s for step in facts.steps)
    if len(facts.steps) < _STEPS or waited <= _WAITING * ease * (waited + busy):
        return None
    return (
        f"the learner waited {waited / (waited + busy):.0%} of the time for a batch: raise rollout.in_flight (with "
        "engine.max_running), engine.count or rollout.max_staleness, or lower rollout.groups_per_step"
    )


def check_idle_engines(facts: RunSignals, ease: float) -> str | None:
    share = facts.idle_engines
    if share is None or share <= _IDLE * ease:
        return None
    return (
        f"engines had no request in {share:.0%} of the last {ENGINE_CHECKS} looks: raise rollout.in_flight, "
        "rollout.max_staleness or "
        "episodes_per_worker where there is room, or lower engine.count"
    )


def check_trained_share(facts: RunSignals, ease: float) -> str | None:
    tenths = [step.share_by_decile for step in facts.steps if step.share_by_decile]
    if len(tenths) < _STEPS:
        return None
    means = [fmean(each) for each in zip(*tenths, strict=True)]
    if max(means) - min(means) <= _SPREAD * ease:
        return None
    return (
        f"{means[-1]:.0%} of the longest tenth's tokens are trained, and {means[0]:.0%} of the shortest's: age takes "
        "from some lengths more than from others. Lower rollout.max_staleness or rollout.slack, or go on with "
        "staleness.policy "
        "= 'wait'"
    )


def check_unclipped(facts: RunSignals, ease: float) -> str | None:
    del ease
    newest = facts.steps[-_UNCLIPPED_STEPS:]
    clips, age = [_clip(step) for step in newest], _mean(step.staleness_mean for step in newest)
    if len(newest) < _UNCLIPPED_STEPS or (age or 0.0) < _OLD or any(clip is None or clip > 0 for clip in clips):
        return None
    return (
        f"no token of the last {len(newest)} steps was clipped, at a mean age of {age:.1f}: the policy hardly moves. "
        "Raise learner.lr"
    )


HEALTH_RULES: Mapping[str, AlertRule] = {
    "disk": check_disk,
    "sandbox_start": check_sandbox_start,
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


def _size(found: DiskSignals) -> str:
    return f"{found.free / 1e9:.1f} GB"


def _until(found: DiskSignals) -> str:
    return "" if found.full_in_s is None else f", and at this pace it is full in {found.full_in_s / 3600:.1f} h"
