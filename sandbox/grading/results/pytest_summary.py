"""Reads pytest's short summaries, line by line, from the test process's own stream.

Nothing before a "short test summary info" line counts. A program under test may share the stream with its tests, or
pytest may repeat its output: it can add lines, even a whole summary, but remove none. So every non-pass counts wherever
it appears, and no more tests count as passed than the smallest of all endings states: a summary by its names, pytest's
closing line by its number. Further passes are spare: they only count for expected tests (a script may run pytest
twice), and for none if a test was skipped, because pytest does not name that. A failure of an unexpected test counts if
the last summary of a session names it: a test may show the output of a pytest that it ran itself.
"""

from __future__ import annotations

import re

from protocol.truncation import strip_escapes
from sandbox.grading.results.verdict import GradingOutcome, GradingReport, ReportedTest

_START = re.compile(r"=*\s*test session starts\s*=*")
_HEADER = re.compile(r"=*\s*short test summary info\s*=*", re.IGNORECASE)
_CLOSING = re.compile(r"=*\s*(\d+ [a-z ]+(?:, \d+ [a-z ]+)*) in [\d.]+s(?: \([\d:, a-z]+\))?\s*=*")
_RAN = re.compile(r"(?<!\d)\d++ (?:x?passed|failed|errors?)\b")
_PASSED, _PASSED_OR_XPASSED = re.compile(r"(?<!\d)(\d++) passed\b"), re.compile(r"(?<!\d)(\d++) x?passed\b")
_NAME = re.compile(r"(?:(?!::).)*+::.*|\S+\.py")
"""Matches a test or a file as pytest writes it: a program's log has other lines that begin with ERROR."""
_MAX_LINE_BYTES = 4096
_MAX_NAMES_BYTES = 1 << 20
_OUTCOMES = {
    "PASSED": GradingOutcome.PASSED,
    "XPASS": GradingOutcome.PASSED,
    "XFAIL": GradingOutcome.XFAILED,
    "FAILED": GradingOutcome.FAILED,
    "ERROR": GradingOutcome.ERROR,
    "SKIPPED": GradingOutcome.SKIPPED,
}
_CLAIMS = frozenset({GradingOutcome.PASSED, GradingOutcome.XFAILED})
"""Outcomes from which a program under test could benefit."""
_FLOOD = ReportedTest("summary::more-than-is-read", GradingOutcome.ERROR)


def _before_reason(rest: str) -> str:
    """Return the name in ``name - reason``; a name's parameters may contain the dash too."""
    before, _, _ = rest.partition(" - ")
    end = rest.find("] - ") if "[" in before and "]" not in before else -1
    if end >= 0:
        return rest[: end + 1]
    return rest if "[" in before and "]" not in before and rest.endswith("]") else before


class _SummaryLines:
    """Distinct lines in their order, up to a total length of their names."""

    def __init__(self) -> None:
        self.lines: dict[ReportedTest, None] = {}
        self._room = _MAX_NAMES_BYTES

    def add(self, test: ReportedTest) -> bool:
        """Add a line; returns False if there was no room for it."""
        if test not in self.lines and self._room > 0:
            self._room -= len(test.name)
            self.lines[test] = None
        return test in self.lines

    def with_outcome(self, outcome: GradingOutcome) -> list[ReportedTest]:
        return [test for test in self.lines if test.outcome is outcome]


_LOCATED = re.compile(r"^\[\d++\] ")
"""Number of the tests that were skipped for one reason, which pytest names by their file and line."""


class SummaryParser:
    """Parses the output as it arrives; ``report`` returns the result.

    ``xpass_fails``: a test has failed that passed although its author expects it to fail.
    """

    def __init__(self, *, xpass_fails: bool = False) -> None:
        self._xpass_fails = xpass_fails
        self._line = bytearray()
        self._claims: _SummaryLines | None = None
        """Claims of the summary that is being read."""
        self._ran = False
        """True if that summary names a test that passed or failed."""
        self._smallest: _SummaryLines | None = None
        """Claims of the summary with the fewest passes."""
        self._counted: int | None = None
        """Smallest number of passes in a closing line."""
        self._passes, self._xfails, self._others = _SummaryLines(), _SummaryLines(), _SummaryLines()
        self._depth = 0
        """Number of pytest sessions that have started but not ended: a test may start another one."""
        self._outermost = True
        """True if the summary that is being read is of an outermost session."""
        self._failures: dict[ReportedTest, None] = {}
        """Failures in the last such summary, as far as pytest can have written them."""
        self._earlier: dict[ReportedTest, None] = {}
        """Failures of the earlier sessions."""

    def feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._line += line[:_MAX_LINE_BYTES]
            self._take(bytes(self._line[:_MAX_LINE_BYTES]))
            self._line.clear()
        if len(self._line) < _MAX_LINE_BYTES:
            self._line += rest[:_MAX_LINE_BYTES]

    def _take(self, raw: bytes) -> None:
        line = strip_escapes(raw.decode(errors="replace")).strip()
        if _HEADER.fullmatch(line):
            self._end()
            self._claims, self._ran, self._outermost = _SummaryLines(), False, self._depth <= 1
            if self._outermost:
                self._failures.clear()
        elif _START.fullmatch(line):
            self._begin()
        elif found := _CLOSING.fullmatch(line):
            self._depth = max(0, self._depth - 1)
            self._count(found[1])
        elif self._claims is not None:
            self._read(line, self._claims)

    def _read(self, line: str, claims: _SummaryLines) -> None:
        word, rest = (*line.split(maxsplit=1), "", "")[:2]
        word = word.strip(":")
        outcome = GradingOutcome.FAILED if word == "XPASS" and self._xpass_fails else _OUTCOMES.get(word)
        if outcome is GradingOutcome.SKIPPED:
            rest = _LOCATED.sub("", rest, count=1)
        name = rest.strip() if word == "PASSED" else _before_reason(rest).strip()
        if outcome is None or not name:
            return
        self._ran = self._ran or outcome not in (GradingOutcome.XFAILED, GradingOutcome.SKIPPED)
        test = ReportedTest(name, outcome)
        if outcome in _CLAIMS:
            claims.add(test)
        elif not self._others.add(test):
            self._others.lines[_FLOOD] = None
            self._failures[_FLOOD] = None
        elif self._outermost and _NAME.fullmatch(name):
            self._failures[test] = None

    def _begin(self) -> None:
        """Begin a session."""
        self._depth += 1
        if self._depth == 1:
            self._earlier |= self._failures
            self._failures = {}

    def _end(self) -> None:
        """End the summary that was being read."""
        if self._claims is None or not self._ran:
            return
        passes = self._claims.with_outcome(GradingOutcome.PASSED)
        for test in passes:
            self._passes.add(test)
        for test in self._claims.with_outcome(GradingOutcome.XFAILED):
            self._xfails.add(test)
        if self._smallest is None or len(passes) <= len(self._smallest.with_outcome(GradingOutcome.PASSED)):
            self._smallest = self._claims

    def _count(self, closing: str) -> None:
        if _RAN.search(closing):
            passes = _PASSED if self._xpass_fails else _PASSED_OR_XPASSED
            passed = sum(map(int, passes.findall(closing)))
            self._counted = passed if self._counted is None else min(passed, self._counted)

    def report(self) -> GradingReport:
        """Return the report of everything read so far."""
        if self._line:
            self._take(bytes(self._line))
            self._line.clear()
        self._end()
        smallest = self._smallest or _SummaryLines()
        known = dict.fromkeys(smallest.with_outcome(GradingOutcome.PASSED)[: self._counted])
        spare = [test for test in self._passes.lines if test not in known]
        spare += [test for test in self._xfails.lines if test not in smallest.lines]
        if self._others.with_outcome(GradingOutcome.SKIPPED):
            spare = []
        tests = (*known, *smallest.with_outcome(GradingOutcome.XFAILED), *self._others.lines)
        return GradingReport(
            tests, spare_passes=tuple(spare), unexpected_failures=tuple(self._earlier | self._failures)
        )
