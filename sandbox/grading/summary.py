"""pytest's short summary, read line by line from the grade child's own stream.

Nothing before a "short test summary info" line counts.  A program under test may share the stream with its tests, and
can only ever add to what they say: :func:`sandbox.grading.outcome.judge` lets the worst word count.
"""

from __future__ import annotations

from sandbox.grading.outcome import Outcome, Report, Reported

HEADER = "short test summary info"
_MAX_LINE_BYTES = 4096
_MAX_NAMES = 10_000
_OUTCOMES = {
    "PASSED": Outcome.PASSED,
    "XPASS": Outcome.XPASSED,
    "XFAIL": Outcome.XFAILED,
    "FAILED": Outcome.FAILED,
    "ERROR": Outcome.ERROR,
    "SKIPPED": Outcome.SKIPPED,
}


class SummaryParser:
    """Feed it bytes as they come; ask for the report at the end."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._in_summary = False
        self._said: dict[Reported, None] = {}

    def feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._line += line[:_MAX_LINE_BYTES]
            self._take(bytes(self._line[:_MAX_LINE_BYTES]))
            self._line.clear()
        if len(self._line) < _MAX_LINE_BYTES:
            self._line += rest[:_MAX_LINE_BYTES]

    def _take(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").strip()
        if HEADER in line:
            self._in_summary = True
            return
        word, _, rest = line.partition(" ")
        outcome = _OUTCOMES.get(word)
        name = rest.split(" - ", 1)[0].strip()
        if not self._in_summary or outcome is None or not name:
            return
        if outcome is not Outcome.PASSED or len(self._said) < _MAX_NAMES:  # a flood hides no failure
            self._said[Reported(name, outcome)] = None

    def report(self) -> Report:
        """Everything that the summary says so far."""
        if self._line:
            self._take(bytes(self._line))
            self._line.clear()
        return Report(tuple(self._said))
