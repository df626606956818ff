"""If these fail, rollout begins what will be too old when it is trained, or leaves the learner without work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.admission import AdmissionDecision, AdmissionHold, MeasuredTimes, RolloutTuning, decide_admission
from protocol.staleness import AdmissionLimit, AdmissionMode

MODES, GROUPS, ETAS = st.sampled_from(AdmissionMode), st.integers(1, 8), st.integers(1, 5)
PUBLISHED = st.integers(0, 20)


def asked(admission: AdmissionLimit, live: int, published: int, total_steps: int = 1000) -> AdmissionDecision:
    return decide_admission(
        admission, RolloutTuning(), MeasuredTimes(), live=live, served_step=published, total_steps=total_steps
    )


@given(MODES, GROUPS, ETAS, PUBLISHED)
def test_nothing_is_begun_that_would_be_older_than_the_lead(
    mode: AdmissionMode, groups: int, eta: int, published: int
) -> None:
    admission = AdmissionLimit(mode, groups, eta)
    assert admission.max_steps_ahead <= eta
    opened = asked(admission, 0, published).groups
    assert (opened - 1) // groups - published == admission.max_steps_ahead
    assert asked(admission, opened, published) == AdmissionDecision(
        0, AdmissionHold.STALENESS, admission.max_steps_ahead
    )
    assert asked(admission, opened + 5, published).groups == 0
    assert asked(admission, opened, published + 1).groups == groups


@given(MODES, GROUPS, ETAS, PUBLISHED)
def test_no_more_is_begun_than_the_steps_that_are_left_can_use(
    mode: AdmissionMode, groups: int, eta: int, published: int
) -> None:
    admission, steps = AdmissionLimit(mode, groups, eta), published + 1
    assert asked(admission, steps * groups - 1, published, steps).groups == 1
    assert asked(admission, steps * groups, published, steps).hold is AdmissionHold.RUN_COMPLETE
