"""What became of the tests of a session of pytest, by the reports of its tests. Pure.

Standard library only: a copy runs in containers.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Protocol

_EXCUSES = frozenset({"skip", "skipif", "xfail", "__unittest_skip__", "__unittest_expecting_failure__"})
"""Keywords of a test that its author lets be skipped or fail."""


class SessionOutcome(Enum):
    """The outcome of a session's tests."""

    PASSED = "passed"
    """Each test that was collected passed, but for those that are marked to be skipped or to fail, and one did."""
    FAILED = "failed"
    OPEN = "open"
    """Neither: a test did not run, skipped itself, or could not be collected, set up or ended."""


class Report(Protocol):
    """pytest's report of something that it collected, or of a phase of a test."""

    @property
    def passed(self) -> bool: ...
    @property
    def failed(self) -> bool: ...
    @property
    def skipped(self) -> bool: ...


class PhaseReport(Report, Protocol):
    """pytest's report of a phase of a test."""

    @property
    def nodeid(self) -> str: ...
    @property
    def when(self) -> str | None: ...
    @property
    def keywords(self) -> Collection[str]: ...


class SessionTests:
    """The tests of a session that have been reported."""

    def __init__(self) -> None:
        self._failed = False
        self._unsure = False
        """True if a phase of a test, or of the collection, did neither pass nor fail as a test does."""
        self._passed: set[str] = set()
        self._excused: set[str] = set()

    def add(self, report: PhaseReport, *, failed: bool) -> None:
        """Add the report of a phase; ``failed``: it says so in every way that reporters ask."""
        if failed and report.when == "call":
            self._failed = True
        elif report.skipped and _EXCUSES.intersection(report.keywords):
            self._excused.add(report.nodeid)
        elif failed or report.failed or report.skipped:
            self._unsure = True
        elif report.passed and report.when == "call":
            self._passed.add(report.nodeid)

    def add_collected(self, report: Report) -> None:
        """Add the report of a file that was collected."""
        self._unsure |= not report.passed

    def outcome(self, collected: Collection[str]) -> SessionOutcome:
        """Return the outcome of a session that collected tests of these ids."""
        if self._failed:
            return SessionOutcome.FAILED
        whole = self._passed and self._passed.union(self._excused).issuperset(collected)
        return SessionOutcome.PASSED if whole and not self._unsure else SessionOutcome.OPEN
