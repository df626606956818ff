"""The verdict of a test run: pytest's short summary, read line by line from the grade child's own stream.

A test has passed when a ``PASSED name`` line and no ``FAILED`` or ``ERROR`` line for it follows a "short test summary
info" line.  Skipped is not passed.  What was expected and did not report has failed.  Saying both is failing: a program
under test may share the stream with its tests, and can only ever add to what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.trajectory import TestResult

HEADER = "short test summary info"
_MAX_LINE_BYTES = 4096
_MAX_NAMES = 10_000
_OUTCOMES = {"PASSED": True, "XPASS": False, "XFAIL": False, "FAILED": False, "ERROR": False, "SKIPPED": False}


class SummaryParser:
    """Feed it bytes as they come; ask for the verdict at the end."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._in_summary = False
        self._passed: dict[str, bool] = {}

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
        outcome, _, rest = line.partition(" ")
        if not self._in_summary or outcome not in _OUTCOMES or not rest:
            return
        name = test_name(rest)
        if name in self._passed or len(self._passed) < _MAX_NAMES:
            self._passed[name] = self._passed.get(name, True) and _OUTCOMES[outcome]

    def verdict(self, expected: Sequence[str]) -> tuple[TestResult, ...]:
        """One result for each expected test, or for each reported one when none is named."""
        if self._line:
            self._take(bytes(self._line))
            self._line.clear()
        names = expected or tuple(self._passed)
        return tuple(TestResult(name, self._passed.get(test_name(name), False)) for name in names)


def test_name(text: str) -> str:
    """``tests/test_a.py::test_x[1] - AssertionError: …`` → ``test_x[1]``: how names are compared."""
    return text.split(" - ", 1)[0].strip().split("::", 1)[-1]


test_name.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]  no test, whatever pytest takes its name for
