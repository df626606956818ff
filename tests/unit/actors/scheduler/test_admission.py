"""If these fail, rollout begins what will be too old when it is trained, or leaves the learner without work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.admission import AdmissionDecision, AdmissionHold, MeasuredTimes, decide_admission
from actors.scheduler.settings import SchedulerSettings
from protocol.staleness import AdmissionLimit, AdmissionMode

TUNING = SchedulerSettings().tuning(publish_every=1)

MODES, GROUPS, ETAS = st.sampled_from(AdmissionMode), st.integers(1, 8), st.integers(1, 5)
PUBLISHED = st.integers(0, 20)


def decide(admission: AdmissionLimit, live: int, published: int, total_steps: int = 1000) -> AdmissionDecision:
    return decide_admission(
        admission, TUNING, MeasuredTimes(), live=live, served_step=published, total_steps=total_steps
    )


@given(MODES, GROUPS, ETAS, PUBLISHED)
def test_no_group_is_opened_beyond_the_staleness_lead(
    mode: AdmissionMode, groups: int, max_staleness: int, published: int
) -> None:
    admission = AdmissionLimit(mode, groups, max_staleness)
    assert admission.max_steps_ahead <= max_staleness
    opened = decide(admission, 0, published).groups
    assert (opened - 1) // groups - published == admission.max_steps_ahead
    assert decide(admission, opened, published) == AdmissionDecision(
        0, AdmissionHold.STALENESS, admission.max_steps_ahead
    )
    assert decide(admission, opened + 5, published).groups == 0
    assert decide(admission, opened, published + 1).groups == groups


@given(MODES, GROUPS, ETAS, PUBLISHED)
def test_no_more_groups_are_opened_than_the_remaining_steps_use(
    mode: AdmissionMode, groups: int, max_staleness: int, published: int
) -> None:
    admission, steps = AdmissionLimit(mode, groups, max_staleness), published + 1
    assert decide(admission, steps * groups - 1, published, steps).groups == 1
    assert decide(admission, steps * groups, published, steps).hold is AdmissionHold.RUN_COMPLETE
