"""If these fail, tokens look younger than they are, and the staleness bound is a wish."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.weights import NO_VERSION, Lineage, LineageEntry, WeightVersion, format_version, make_version


def _lineage(*edges: tuple[int, int, int]) -> Lineage:
    lineage = Lineage()
    for version, step, parent in edges:
        lineage.add(WeightVersion(version), step, WeightVersion(parent))
    return lineage


def test_age_is_counted_in_steps_and_not_in_versions() -> None:
    lineage = _lineage((0, 0, -1), (1, 2, 0), (2, 5, 1))
    assert lineage.staleness(0, 2) == 5
    assert lineage.staleness(1, 2) == 3
    assert lineage.staleness(2, 2) == 0


def test_a_resumed_run_that_copies_a_checkpoint_makes_nothing_older() -> None:
    again = make_version(1, 0)
    lineage = _lineage((0, 0, -1), (1, 4, 0), (again, 4, 1))
    assert lineage.staleness(1, again) == 0


def test_tokens_of_a_branch_that_was_rolled_back_are_measured_through_the_fork() -> None:
    """Steps 1..3 were taken, the run went back to step 1, and the other branch has taken 2 steps."""
    lineage = _lineage((0, 0, -1), (1, 1, 0), (2, 2, 1), (3, 3, 2), (10, 1, 1), (11, 2, 10), (12, 3, 11))
    assert lineage.staleness(3, 12) == 2 + 2
    assert lineage.staleness(2, 10) == 1
    assert lineage.staleness(1, 12) == 2
    assert lineage.staleness(12, 3) == lineage.staleness(3, 12)


def test_a_version_without_a_common_ancestor_is_an_error() -> None:
    lineage = _lineage((0, 0, -1), (7, 0, -1))
    with pytest.raises(KeyError):
        lineage.staleness(5, 0)
    with pytest.raises(KeyError, match="no common ancestor"):
        lineage.staleness(7, 0)


def test_computing_staleness_takes_constant_time_in_a_long_lineage() -> None:
    """Only what is as old as the token is looked at, not the whole line up to the first weights."""

    class Counted(dict[int, LineageEntry]):
        looks = 0

        def __getitem__(self, version: int) -> LineageEntry:
            self.looks += 1
            return super().__getitem__(version)

    lineage = _lineage((0, 0, -1), *((version, version, version - 1) for version in range(1, 5000)))
    counted = lineage.entries = Counted(lineage.entries)
    assert lineage.staleness(4996, 4999) == 3
    assert counted.looks < 10


def test_versions_are_never_reused_across_starts() -> None:
    lineage = _lineage((0, 0, -1))
    with pytest.raises(ValueError, match="exists"):
        lineage.add(WeightVersion(0), 1, NO_VERSION)
    with pytest.raises(ValueError, match="unknown"):
        lineage.add(WeightVersion(9), 1, WeightVersion(1))
    with pytest.raises(ValueError, match="is newer"):
        lineage.add(WeightVersion(1), 1, WeightVersion(9))
    assert make_version(1, 0) > make_version(0, 99)
    assert format_version(make_version(2, 7)) == "2.7"


def test_a_version_is_an_int32() -> None:
    last = make_version((1 << 11) - 1, (1 << 20) - 1)
    assert last == np.iinfo(np.int32).max
    for start, count in ((1 << 11, 0), (0, 1 << 20), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="out of range"):
            make_version(start, count)
