"""Reads the output of test scripts that say in one word how they ended, as Terminal-Bench's adapters do.

SWE-bench, SWE-Perf and MLE-bench print a word between two markers, SWE-Lancer a phrase anywhere.  The first start
marker and the last end marker count.  Memory is bounded: a longer output than is kept has failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sandbox.grading.results.pytest_summary import SummaryParser
from sandbox.grading.results.verdict import GradingOutcome, GradingReport, ReportedTest
from sandbox.tasks.task_grading import ResultsFormat

_MAX_BYTES = 1 << 20
TEST = "tests"
"""Name of the one test of such a script."""
_SUCCESS, _FAILURE, _TOOL, _COMPLETED = b"swe lancer success", b"swe lancer failure", b"user_tool", b"completed"
_PHRASES = (_SUCCESS, _FAILURE, _TOOL, _COMPLETED)


class OutputParser(Protocol):
    """Parses the output of a test script as it arrives."""

    def feed(self, data: bytes) -> None: ...

    def report(self) -> GradingReport: ...


class Markers(NamedTuple):
    start: bytes
    end: bytes
    passing: bytes
    """Text between the markers that means a pass."""
    needed: bool
    """Whether there is no verdict without the markers; otherwise the whole output counts."""


_MARKERS = {
    ResultsFormat.SWEBENCH: Markers(b"SWEBench results starts here", b"SWEBench results ends here", b"PASSED", True),
    ResultsFormat.SWEPERF: Markers(b"SWE-Perf results starts here", b"SWE-Perf results ends here", b"PASSED", True),
    ResultsFormat.MLEBENCH: Markers(
        b"MLEBench results starts here", b"MLEBench results ends here", b"ALL TESTS PASSED", False
    ),
}


def make_output_parser(results: ResultsFormat, *, alone: bool) -> OutputParser:
    """Return the parser of a task's results; ``alone``: the task has no report files.

    Then a test that passes against its author's expectation has failed, as in Terminal-Bench; otherwise the files tell.
    """
    if results is ResultsFormat.PYTEST:
        return SummaryParser(xpass_fails=alone)
    return PhraseParser() if results is ResultsFormat.SWELANCER else MarkedOutputParser(_MARKERS[results])


@dataclass(slots=True)
class MarkedOutputParser:
    markers: Markers
    _output: bytearray = field(default_factory=bytearray)
    _started: bool = False
    _is_whole: bool = True

    def feed(self, data: bytes) -> None:
        unseen = max(0, len(self._output) - len(self.markers.start))
        self._output += data
        if not self._started and (at := self._output.find(self.markers.start, unseen)) >= 0:
            del self._output[: at + len(self.markers.start)]
            self._started = self._is_whole = True
        elif not self._started and self.markers.needed:
            del self._output[: -len(self.markers.start)]
        if len(self._output) > _MAX_BYTES:
            self._is_whole = False
            del self._output[: -len(self.markers.end)]

    def report(self) -> GradingReport:
        """Return the report of everything read so far; a fault if needed markers are missing."""
        ended = self.markers.end in self._output
        if self.markers.needed and not (self._started and ended):
            return GradingReport(fault=f"the tests did not print {self.markers.start.decode()!r} and its end")
        block = self._output.rpartition(self.markers.end)[0] if ended else self._output
        return _one_test(self._is_whole and block.decode(errors="replace").strip() == self.markers.passing.decode())


@dataclass(slots=True)
class PhraseParser:
    """Parser of SWE-Lancer's output, in any case of letters."""

    _end: bytes = b""
    _seen: set[bytes] = field(default_factory=set[bytes])

    def feed(self, data: bytes) -> None:
        text = self._end + data.lower()
        self._seen |= {phrase for phrase in _PHRASES if phrase in text}
        self._end = text[1 - max(map(len, _PHRASES)) :]

    def report(self) -> GradingReport:
        """Return the report of everything read so far."""
        completed = {_TOOL, _COMPLETED} <= self._seen and _FAILURE not in self._seen
        return _one_test(_SUCCESS in self._seen or completed)


def _one_test(passed: bool) -> GradingReport:
    outcome = GradingOutcome.PASSED if passed else GradingOutcome.FAILED
    return GradingReport((ReportedTest(TEST, outcome),))
