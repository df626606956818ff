"""pytest's short summaries, read line by line from the grade child's own stream.

Nothing before a "short test summary info" line counts.  A program under test may share the stream with its tests, or
pytest may show again what it printed: it can add to what they say, a whole summary too, and take nothing back.  So
whatever did not pass counts wherever it stands, and no more tests are known to have passed than the least of all
endings says: a summary by its names, pytest's closing line by its number.  Passes beyond that stand aside: they answer
for expected tests only (a script may run pytest twice), and for nobody where a test was skipped, which pytest does not
name.  A failure of a test that nobody expects counts where the last summary of a session says it: a test may show what
a run of pytest within it said.
"""

from __future__ import annotations

import re

from protocol.truncation import strip_escapes
from sandbox.grading.results.verdict import GradingOutcome, GradingReport, ReportedTest

_START = re.compile(r"=*\s*test session starts\s*=*")
_HEADER = re.compile(r"=*\s*short test summary info\s*=*")
_CLOSING = re.compile(r"=*\s*(\d+ [a-z ]+(?:, \d+ [a-z ]+)*) in [\d.]+s(?: \([\d:, a-z]+\))?\s*=*")
_RAN = re.compile(r"\d+ (?:x?passed|failed|errors?)\b")
_PASSED = re.compile(r"(\d+) x?passed\b")
_NAME = re.compile(r".*::.*|\S+\.py")
"""In how pytest writes a test or a file: a program's log has other lines that begin with ERROR."""
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
"""What a program under test could gain by."""
_FLOOD = ReportedTest("summary::more-than-is-read", GradingOutcome.ERROR)


class _SummaryLines:
    """Each once, in their order, as far as there is room for their names."""

    def __init__(self) -> None:
        self.lines: dict[ReportedTest, None] = {}
        self._room = _MAX_NAMES_BYTES

    def add(self, said: ReportedTest) -> bool:
        """False when there was no room for it."""
        if said not in self.lines and self._room > 0:
            self._room -= len(said.name)
            self.lines[said] = None
        return said in self.lines

    def with_outcome(self, outcome: GradingOutcome) -> list[ReportedTest]:
        return [said for said in self.lines if said.outcome is outcome]


class SummaryParser:
    """Feed it bytes as they come; ask for the report at the end."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._claims: _SummaryLines | None = None
        """Of the summary that is being read."""
        self._ran = False
        """Whether that names a test that passed or failed."""
        self._least: _SummaryLines | None = None
        """The claims of the summary that names the fewest passes."""
        self._counted: int | None = None
        """The least that a closing line says."""
        self._passes, self._xfails, self._others = _SummaryLines(), _SummaryLines(), _SummaryLines()
        self._depth = 0
        """Sessions of pytest that have begun and not ended: one that a test starts is within that test's."""
        self._outermost = True
        """Whether the summary that is being read is of no session within another."""
        self._failures: dict[ReportedTest, None] = {}
        """Of the last such summary of a session, as far as pytest can have written them."""
        self._earlier: dict[ReportedTest, None] = {}
        """The same of the sessions before."""

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
        word, _, rest = line.partition(" ")
        outcome = _OUTCOMES.get(word)
        name = rest.split(" - ", 1)[0].strip()
        if outcome is None or not name:
            return
        self._ran = self._ran or outcome not in (GradingOutcome.XFAILED, GradingOutcome.SKIPPED)
        said = ReportedTest(name, outcome)
        if outcome in _CLAIMS:
            claims.add(said)
        elif not self._others.add(said):
            self._others.lines[_FLOOD] = None
            self._failures[_FLOOD] = None
        elif self._outermost and _NAME.fullmatch(name):
            self._failures[said] = None

    def _begin(self) -> None:
        """Of a session."""
        self._depth += 1
        if self._depth == 1:
            self._earlier |= self._failures
            self._failures = {}

    def _end(self) -> None:
        """Of the summary that was being read."""
        if self._claims is None or not self._ran:
            return
        passes = self._claims.with_outcome(GradingOutcome.PASSED)
        for said in passes:
            self._passes.add(said)
        for said in self._claims.with_outcome(GradingOutcome.XFAILED):
            self._xfails.add(said)
        if self._least is None or len(passes) <= len(self._least.with_outcome(GradingOutcome.PASSED)):
            self._least = self._claims

    def _count(self, closing: str) -> None:
        if _RAN.search(closing):
            passed = sum(map(int, _PASSED.findall(closing)))
            self._counted = passed if self._counted is None else min(passed, self._counted)

    def report(self) -> GradingReport:
        """Everything that was said so far."""
        if self._line:
            self._take(bytes(self._line))
            self._line.clear()
        self._end()
        least = self._least or _SummaryLines()
        known = dict.fromkeys(least.with_outcome(GradingOutcome.PASSED)[: self._counted])
        aside = [said for said in self._passes.lines if said not in known]
        aside += [said for said in self._xfails.lines if said not in least.lines]
        if self._others.with_outcome(GradingOutcome.SKIPPED):
            aside = []
        tests = (*known, *least.with_outcome(GradingOutcome.XFAILED), *self._others.lines)
        return GradingReport(
            tests, spare_passes=tuple(aside), unexpected_failures=tuple(self._earlier | self._failures)
        )
