"""If these fail, infrastructure takes long episodes out of the training and nobody is told."""

from __future__ import annotations

from actors.scheduler.failure_rates import FailureRateTracker


def rates(failed_from: int, attempts: int = 100) -> FailureRateTracker:
    """Return the failure rates of ``attempts`` that took 1, 2, 3… s and failed from ``failed_from`` s on."""
    collected = FailureRateTracker()
    for seconds in range(attempts, 0, -1):
        collected.add_attempt(float(seconds), failed=seconds >= failed_from)
    return collected


def test_failures_are_counted_by_decile_of_duration() -> None:
    collected = rates(failed_from=86)
    found = collected.pop_report()
    assert found is not None
    assert (found.attempts, found.failed) == (100, 15)
    assert found.by_decile == (0.0,) * 8 + (0.5, 1.0)
    assert len(collected) == 0
    assert collected.pop_report() is None


def test_attempts_that_do_not_divide_by_ten_are_spread_over_all_deciles() -> None:
    found = rates(failed_from=1, attempts=17).pop_report()
    assert found is not None
    assert found.by_decile == (1.0,) * 10
    assert rates(failed_from=1, attempts=9).pop_report() is None, "too few for tenths"


def test_a_slowest_decile_that_fails_far_above_average_raises_an_alert() -> None:
    concentrated, everywhere, none = (rates(failed_from=seconds).pop_report() for seconds in (91, 1, 101))
    assert concentrated is not None
    assert "failed 100% of the slowest tenth of 100 attempts, but 10% of all" in (concentrated.alert or "")
    assert everywhere is not None
    assert everywhere.alert is None, "long ones are no worse off"
    assert none is not None
    assert none.alert is None
