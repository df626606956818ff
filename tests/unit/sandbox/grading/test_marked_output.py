"""If these fail, Terminal-Bench's adapted tasks get another verdict than in its own harness."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.results.marked_output import make_output_parser
from sandbox.grading.results.verdict import GradingReport
from sandbox.tasks.task_grading import ResultsFormat

SWEBENCH = b"noise\nSWEBench results starts here\n%s\nSWEBench results ends here\n"
SWEPERF = SWEBENCH.replace(b"SWEBench", b"SWE-Perf")
MLEBENCH = SWEBENCH.replace(b"SWEBench", b"MLEBench")
CASES = [
    (ResultsFormat.SWEBENCH, SWEBENCH % b"PASSED", True),
    (ResultsFormat.SWEBENCH, SWEBENCH % b"FAILED", False),
    (ResultsFormat.SWEBENCH, SWEBENCH % b"PASSED\nreally", False),
    (ResultsFormat.SWEBENCH, SWEBENCH % b"PASSED" + b"x" * (2 << 20) + b"SWEBench results ends here", False),
    (ResultsFormat.SWEBENCH, b"x" * (2 << 20) + SWEBENCH % b"PASSED", True),
    (ResultsFormat.SWEBENCH, b"PASSED", None),
    (ResultsFormat.SWEBENCH, b"SWEBench results starts here\nPASSED\n", None),
    (ResultsFormat.SWEBENCH, b"SWEBench results ends here\nPASSED\n", None),
    (ResultsFormat.SWEPERF, SWEPERF % b"PASSED", True),
    (ResultsFormat.SWEPERF, SWEBENCH % b"PASSED", None),
    (ResultsFormat.MLEBENCH, MLEBENCH % b"ALL TESTS PASSED", True),
    (ResultsFormat.MLEBENCH, b"ALL TESTS PASSED\n", True),
    (ResultsFormat.MLEBENCH, b"x" * (2 << 20) + MLEBENCH % b"ALL TESTS PASSED", True),
    (ResultsFormat.MLEBENCH, MLEBENCH % b"PASSED", False),
    (ResultsFormat.MLEBENCH, b"", False),
    (ResultsFormat.SWELANCER, b"... SWE Lancer success", True),
    (ResultsFormat.SWELANCER, b"swe lancer failure, then swe lancer success", True),
    (ResultsFormat.SWELANCER, b"user_tool: Completed", True),
    (ResultsFormat.SWELANCER, b"user_tool: completed, swe lancer failure", False),
    (ResultsFormat.SWELANCER, b"", False),
]
"""Format, output, and the verdict of Terminal-Bench 0.2.18: passed, failed, or none."""


def verdict(report: GradingReport) -> bool | None:
    if report.fault:
        return None
    (test,) = report.tests
    return test.outcome.value == "passed"


@pytest.mark.parametrize(("form", "output", "passed"), CASES)
@pytest.mark.parametrize("piece", [7, 1 << 16, 1 << 30])
def test_the_verdict_does_not_depend_on_how_the_output_arrives(
    form: ResultsFormat, output: bytes, passed: bool | None, piece: int
) -> None:
    parser, size = make_output_parser(form, alone=True), max(piece, len(output) // 5000)
    for at in range(0, len(output), size):
        parser.feed(output[at : at + size])
    assert verdict(parser.report()) is passed


@given(st.sampled_from([form for form in ResultsFormat if form is not ResultsFormat.PYTEST]), st.binary(max_size=200))
def test_no_bytes_break_a_parser(form: ResultsFormat, data: bytes) -> None:
    parser = make_output_parser(form, alone=True)
    parser.feed(data)
    assert verdict(parser.report()) is not True or b"passed" in data.lower() or b"swe lancer" in data.lower()
